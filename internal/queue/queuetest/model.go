package queuetest

import "testing"

func testModel(t *testing.T, place func(*testing.T) Open) {}
