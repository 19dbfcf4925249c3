package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// assetsVariable names the folder of the programs, as controller-runtime has it.
const assetsVariable = "KUBEBUILDER_ASSETS"

// findAssets returns the folder of the programs, or says how to get one.
func findAssets() (string, error) {
	const remedy = "run make test, or set it first: export " + assetsVariable + "=$(hack/envtest.sh), which builds them once"
	dir := os.Getenv(assetsVariable)
	if dir == "" {
		return "", fmt.Errorf("%s is not set, so there is no API server to test with: %s", assetsVariable, remedy)
	}
	for _, program := range []string{"kube-apiserver", "etcd", "kubectl"} {
		if _, err := os.Stat(filepath.Join(dir, program)); err != nil {
			return "", fmt.Errorf("%s is %s, where %s is missing: %s", assetsVariable, dir, program, remedy)
		}
	}
	return dir, nil
}

// auditPolicy records each request once, when it was answered, with who did what to which object, and no contents. What
// the API server does for itself is left out.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- {level: None, users: ["system:apiserver"]}
- {level: None, nonResourceURLs: ["*"]}
- {level: Metadata}
`

// configure says how etcd and the API server are started. All they write is in Dir, so that the API server finds it again
// after it was away.
func (c *Cluster) configure(assets string) error {
	plane := &c.env.ControlPlane
	plane.Etcd = &envtest.Etcd{DataDir: filepath.Join(c.Dir, "etcd-data")}
	server := plane.GetAPIServer()
	server.CertDir = filepath.Join(c.Dir, "kube-apiserver-certs")
	for _, dir := range []string{plane.Etcd.DataDir, server.CertDir} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	var err error
	if plane.Etcd.Path, err = c.reaper.wrap(filepath.Join(assets, "etcd")); err != nil {
		return err
	}
	if server.Path, err = c.reaper.wrap(filepath.Join(assets, "kube-apiserver")); err != nil {
		return err
	}
	plane.KubectlPath = filepath.Join(assets, "kubectl")
	if plane.Etcd.Err, err = os.Create(filepath.Join(c.Dir, "etcd.log")); err != nil {
		return err
	}
	if server.Err, err = os.Create(filepath.Join(c.Dir, "kube-apiserver.log")); err != nil {
		return err
	}
	policy := filepath.Join(c.Dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return err
	}
	server.Configure().
		Set("audit-policy-file", policy).
		Set("audit-log-path", c.auditPath()).
		Set("audit-log-maxsize", "4096").
		Set("endpoint-reconciler-type", "none").
		// Some clusters, such as OpenShift, let nobody make an owner wait who may not change its finalizers.
		Append("enable-admission-plugins", "OwnerReferencesPermissionEnforcement").
		// As fast to stop as it can, so that "away" begins at once.
		Set("shutdown-delay-duration", "0s")
	return nil
}

// tail is the end of a log, for messages.
func (c *Cluster) tail(name string) string {
	b, err := os.ReadFile(filepath.Join(c.Dir, name))
	if err != nil {
		return err.Error()
	}
	if len(b) > 4096 {
		b = b[len(b)-4096:]
	}
	return strings.TrimSpace(string(b))
}

// KillAPI ends the API server without a word (SIGKILL), as when its machine is lost. StartAPI starts it again.
func (c *Cluster) KillAPI() error {
	pid, err := c.reaper.pid("kube-apiserver")
	if err != nil {
		return fmt.Errorf("killing the API server: %w", err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("killing the API server: %w", err)
	}
	return c.StopAPI() // waits for its end
}
