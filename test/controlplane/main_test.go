package controlplane

import (
	"context"
	"fmt"
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

// system is the installation's namespace.
const system = "doorstep-system"

// install applies what config/default does, but for the manager's Deployment, which no
// node would run.
func install(ctx context.Context, c *cluster.Cluster) error {
	if err := c.EnsureNamespace(ctx, system, nil); err != nil {
		return err
	}
	for _, folder := range []string{"config/rbac", "config/policy"} {
		if err := c.Install(ctx, folder); err != nil {
			return fmt.Errorf("install: %w", err)
		}
	}
	return nil
}
