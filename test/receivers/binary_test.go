package receivers

// These tests run the binary that is built from this package. Importing it has go test
// run them anew, and not take a cached result, when anything in it has changed.
import _ "github.com/doorstep-dev/doorstep/internal/cli"
