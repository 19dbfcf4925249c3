package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
)

// startTimeout is how long etcd or the API server may take to start, on a machine that does much else.
const startTimeout = 2 * time.Minute

// Cluster is a running control plane in which the kinds of Doorstep are installed, and nothing else.
type Cluster struct {
	// Client reads and writes as an administrator, past all caches. Its scheme knows the kinds of Kubernetes, of Doorstep
	// and CustomResourceDefinitions.
	Client client.Client
	// Dir is a folder that goes away with the cluster.
	Dir string

	env    *envtest.Environment
	reaper *reaper
	admin  string
	number atomic.Int64
}

// Scheme returns a new scheme with the kinds of Kubernetes, of Doorstep and CustomResourceDefinitions.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err) // two kinds of one name: a fault of these lines
		}
	}
	return s
}

// shared is the control plane of a test package.
var shared struct {
	sync.Mutex
	main bool
	c    *Cluster
	err  error
}

// Main runs a package's tests (run is the Run of its testing.M), of which those that call Shared share one control plane,
// and returns the exit code. Without the programs it runs none, and says how to get them.
func Main(run func() int) int {
	if _, err := findAssets(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	shared.Lock()
	shared.main = true
	shared.Unlock()
	code := run()
	shared.Lock()
	defer shared.Unlock()
	if shared.c == nil {
		return code
	}
	if err := shared.c.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// Shared returns the control plane of the package, and starts it when the first test asks for it. Tests keep apart by
// namespaces (see Namespace). The package's TestMain must call Main.
func Shared(t testing.TB) *Cluster {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if !shared.main {
		t.Fatal("cluster.Shared needs func TestMain(m *testing.M) { os.Exit(cluster.Main(m.Run)) } in the package")
	}
	if shared.c == nil && shared.err == nil {
		shared.c, shared.err = New()
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.c
}

// Start starts a control plane for one test, for those that change what all would see: rights, policies, an API server
// that goes away.
func Start(t testing.TB) *Cluster {
	t.Helper()
	c, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// quiet keeps controller-runtime from complaining that nobody listens to it; a test's own manager has its own logger.
var quiet = sync.OnceFunc(func() { log.SetLogger(logr.Discard()) })

// New starts a control plane. Tests call Shared or Start.
func New() (*Cluster, error) {
	quiet()
	assets, err := findAssets()
	if err != nil {
		return nil, err
	}
	root, err := Root()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "doorstep-cluster-")
	if err != nil {
		return nil, fmt.Errorf("starting a control plane: %w", err)
	}
	c := &Cluster{Dir: dir}
	if c.reaper, err = newReaper(dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := c.start(assets, filepath.Join(root, "config", "crd")); err != nil {
		return nil, errors.Join(fmt.Errorf("starting a control plane: %w", err), c.Stop())
	}
	return c, nil
}

func (c *Cluster) start(assets, crds string) error {
	c.env = &envtest.Environment{
		BinaryAssetsDirectory:    assets,
		CRDDirectoryPaths:        []string{crds},
		ErrorIfCRDPathMissing:    true,
		ControlPlaneStartTimeout: startTimeout,
		ControlPlaneStopTimeout:  startTimeout,
	}
	if err := c.configure(assets); err != nil {
		return err
	}
	cfg, err := c.env.Start()
	if err != nil {
		return fmt.Errorf("%w; the API server's last lines:\n%s", err, c.tail("kube-apiserver.log"))
	}
	if c.Client, err = client.New(cfg, client.Options{Scheme: Scheme()}); err != nil {
		return err
	}
	c.admin, err = c.Kubeconfig("admin", cfg)
	return err
}

// Stop ends the control plane and removes its folder. Stopping a stopped one does nothing.
func (c *Cluster) Stop() error {
	var err error
	if c.env != nil && c.Client != nil {
		err = c.env.Stop()
	}
	c.reaper.reap()
	return errors.Join(err, os.RemoveAll(c.Dir))
}

// StopAPI ends the API server and leaves etcd running: from now on nothing listens on its port.
func (c *Cluster) StopAPI() error {
	if err := c.env.ControlPlane.APIServer.Stop(); err != nil {
		return fmt.Errorf("stopping the API server: %w", err)
	}
	return nil
}

// StartAPI starts the API server again, on the same port and with all that it knew.
func (c *Cluster) StartAPI() error {
	if err := c.env.ControlPlane.APIServer.Start(); err != nil {
		return fmt.Errorf("starting the API server again: %w; its last lines:\n%s", err, c.tail("kube-apiserver.log"))
	}
	return nil
}

// Config returns a copy of an administrator's configuration.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.env.Config) }

// Namespace makes a namespace of its own for a test, with the prefix, and returns its name. It has a ServiceAccount
// default, as in every cluster.
func (c *Cluster) Namespace(t testing.TB, prefix string) string {
	t.Helper()
	name := fmt.Sprintf("%s-%d", prefix, c.number.Add(1))
	if err := c.EnsureNamespace(t.Context(), name, nil); err != nil {
		t.Fatal(err)
	}
	return name
}

// EnsureNamespace makes the namespace with the labels, unless it is there.
func (c *Cluster) EnsureNamespace(ctx context.Context, name string, labels map[string]string) error {
	meta := metav1.ObjectMeta{Name: name, Labels: labels}
	err := c.Client.Create(ctx, &corev1.Namespace{ObjectMeta: meta})
	if client.IgnoreAlreadyExists(err) != nil {
		return fmt.Errorf("making namespace %s: %w", name, err)
	}
	account := metav1.ObjectMeta{Name: "default", Namespace: name}
	err = c.Client.Create(ctx, &corev1.ServiceAccount{ObjectMeta: account})
	if client.IgnoreAlreadyExists(err) != nil {
		return fmt.Errorf("making ServiceAccount default of namespace %s: %w", name, err)
	}
	return nil
}

// Root is the folder of the module, which is at or above the working directory.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("looking for go.mod: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("looking for go.mod: there is none above the working directory")
		}
		dir = parent
	}
}
