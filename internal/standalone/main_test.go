package standalone

import (
	"testing"

	"go.uber.org/goleak"
)

// Everything that Run starts ends before it returns: whatever is left when all tests
// have ended is a leak. The tests' own clients and receivers are closed by then.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
