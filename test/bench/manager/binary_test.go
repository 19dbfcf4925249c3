package main

// The test runs the binary that is built from this package. Importing it has go test
// run it anew, and not take a cached result, when anything in it has changed.
import _ "github.com/doorstep-dev/doorstep/internal/cli"
