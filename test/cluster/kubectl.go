package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Kubectl runs kubectl.
type Kubectl struct {
	// Kubeconfig is the path of the kubeconfig to use; empty for the administrator's.
	Kubeconfig string
	// Stdin is what -f - reads.
	Stdin string

	c *Cluster
}

// As runs kubectl with another kubeconfig.
func (c *Cluster) As(kubeconfig string) Kubectl { return Kubectl{Kubeconfig: kubeconfig, c: c} }

// Kubectl runs kubectl as an administrator in the module's folder, and returns its standard output. The error holds what
// it said; errors.As finds the *exec.ExitError with the exit code in it.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return Kubectl{c: c}.Run(ctx, args...)
}

// Apply applies YAML text as an administrator, server-side, as field owner kubectl.
func (c *Cluster) Apply(ctx context.Context, yaml string) error {
	_, err := Kubectl{Stdin: yaml, c: c}.Run(ctx, "apply", "--server-side", "-f", "-")
	return err
}

// Install applies a folder of the module, such as config/rbac, as an administrator, server-side: by -k if it holds a
// kustomization, else by -f.
func (c *Cluster) Install(ctx context.Context, folder string) error {
	root, err := Root()
	if err != nil {
		return err
	}
	how := "-f"
	if _, err := os.Stat(filepath.Join(root, folder, "kustomization.yaml")); err == nil {
		how = "-k"
	}
	_, err = c.Kubectl(ctx, "apply", "--server-side", "--force-conflicts", how, folder)
	return err
}

// Run runs kubectl in the module's folder and returns its standard output.
func (k Kubectl) Run(ctx context.Context, args ...string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	kubeconfig := k.Kubeconfig
	if kubeconfig == "" {
		kubeconfig = k.c.admin
	}
	cmd := exec.CommandContext(ctx, k.c.env.ControlPlane.KubectlPath, args...)
	cmd.Dir = root
	// A home of its own, so that its caches and the user's settings don't meet.
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HOME="+k.c.Dir)
	cmd.Stdin = strings.NewReader(k.Stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}
