// Package rights tests what each ServiceAccount and role of an installation can do, and that admission policies hold
// manager and workers to what is theirs, in whatever namespaces they live.
package rights

import (
	"flag"
	"os"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/test/cluster"
	"github.com/doorstep-dev/doorstep/test/harness"
)

var update = flag.Bool("update", false, "write the golden files anew")

// binary is the doorstep that all tests here run.
var binary string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(cluster.Main(func() int { return harness.RunWithBinary(m.Run, &binary) }))
}

// patience is how long the API server, or a manager, may take to see a change on a machine that does much else.
const patience = 2 * time.Minute
