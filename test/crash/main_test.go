package crash

import (
	"os"
	"strconv"
	"testing"

	"github.com/doorstep-dev/doorstep/test/harness"
)

// binary is the doorstep binary under test.
var binary string

func TestMain(m *testing.M) { os.Exit(harness.RunWithBinary(m.Run, &binary)) }

// setting reads a whole number from the environment.
func setting(t *testing.T, name string, unset int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return unset
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s must be a whole number of 1 or more, not %q", name, text)
	}
	return n
}

var signingKey = harness.Key("crash tests sign with these bytes")
