// Package controlplane tests what manager and worker do to a real API server: as processes, with the
// rights of their ServiceAccounts. What those rights are is for test/rights.
package controlplane

import (
	"os"
	"testing"

	"github.com/doorstep-dev/doorstep/test/cluster"
	"github.com/doorstep-dev/doorstep/test/harness"
)

// binary is the doorstep that all tests here run.
var binary string

func TestMain(m *testing.M) {
	os.Exit(cluster.Main(func() int { return harness.RunWithBinary(m.Run, &binary) }))
}
