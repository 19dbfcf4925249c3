package cluster

import (
	"os"
	"testing"

	"github.com/doorstep-dev/doorstep/test/harness"
)

// binary is the doorstep binary under test.
var binary string

func TestMain(m *testing.M) {
	os.Exit(Main(func() int { return harness.RunWithBinary(m.Run, &binary) }))
}
