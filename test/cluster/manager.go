package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/test/harness"
)

// System is the namespace of the installation.
const System = "doorstep-system"

// Image is the image that managers are told to start workers with. Nothing pulls it: a Pool runs the binary under test.
const Image = "registry.example.com/doorstep:test"

// InstallDoorstep applies config/default: the kinds, rights, policies and the manager's Deployment, whose Pod no node
// runs; StartManager does what it would.
func (c *Cluster) InstallDoorstep(ctx context.Context) error {
	if err := c.EnsureNamespace(ctx, System, nil); err != nil {
		return err
	}
	return c.Install(ctx, "config/default")
}

// Manager is a running `doorstep manager`, with the rights of its ServiceAccount.
type Manager struct {
	*harness.Process
	// Log is what it and its predecessors wrote.
	Log *Log

	command harness.Command
	probes  string
}

// StartManager starts a manager of the installation and waits until it is ready. It is killed when the test ends.
func (c *Cluster) StartManager(t testing.TB, binary string, args ...string) *Manager {
	t.Helper()
	m := c.NewManager(t, binary, System, args...)
	m.Restart(t)
	return m
}

// NewManager is a manager of an installation in the namespace, not started yet. It is killed when the test ends.
func (c *Cluster) NewManager(t testing.TB, binary, namespace string, args ...string) *Manager {
	t.Helper()
	m, err := c.PrepareManager(t.Context(), binary, namespace, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Kill)
	return m
}

// PrepareManager is NewManager for programs that are no tests; they kill the manager themselves.
func (c *Cluster) PrepareManager(ctx context.Context, binary, namespace string, args ...string) (*Manager, error) {
	kubeconfig, err := c.ServiceAccountKubeconfig(ctx, namespace, "doorstep-manager")
	if err != nil {
		return nil, err
	}
	probes, err := harness.FreeAddr()
	if err != nil {
		return nil, err
	}
	m := &Manager{Log: &Log{}, probes: probes}
	m.command = harness.Command{
		Name: "doorstep manager", Path: binary, Log: m.Log,
		Args: append([]string{"manager", "--kubeconfig=" + kubeconfig, "--namespace=" + namespace, "--probes=" + probes, "--metrics=0"}, args...),
		Env:  []string{"DOORSTEP_IMAGE=" + Image, "POD_NAMESPACE=" + namespace},
	}
	return m, nil
}

// Restart kills the manager if it runs, starts it again with a cold cache, and waits until it is ready.
func (m *Manager) Restart(t testing.TB) {
	t.Helper()
	if err := m.Relaunch(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Relaunch is Restart for programs that are no tests.
func (m *Manager) Relaunch(ctx context.Context) error {
	if err := m.launch(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var last error
	err := harness.Await(ctx, 100*time.Millisecond, "the manager to be ready", func() (bool, error) {
		if !m.Running() {
			return false, fmt.Errorf("the manager ended; its last lines:\n%s", m.Tail())
		}
		last = probe("http://" + m.probes + "/readyz")
		return last == nil, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}

// Launch kills the manager if it runs, and starts it again without waiting for it.
func (m *Manager) Launch(t testing.TB) {
	t.Helper()
	if err := m.launch(); err != nil {
		t.Fatal(err)
	}
}

func (m *Manager) launch() error {
	m.Kill()
	p, err := harness.Start(m.command)
	if err == nil {
		m.Process = p
	}
	return err
}

// Kill kills the manager if it runs.
func (m *Manager) Kill() {
	if m.Process != nil {
		m.Process.Kill()
	}
}

var probes = &http.Client{Timeout: time.Second}

// probe asks as a kubelet does.
func probe(url string) error {
	resp, err := probes.Get(url)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s: %s", url, resp.Status, strings.TrimSpace(string(body)))
	}
	return nil
}

// Eventually calls do, several times a second, until it has no error, and fails the test with the last one when that takes
// too long.
func Eventually(t testing.TB, within time.Duration, what string, do func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	var last error
	err := harness.Await(ctx, 100*time.Millisecond, what, func() (bool, error) {
		last = do()
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("after %v, %v: %v", within, err, last)
	}
}

// Log keeps all that processes write, from one start to the next.
type Log struct {
	mu   sync.Mutex
	text []byte
}

// Write keeps b.
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, b...)
	return len(b), nil
}

// String is all of it.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}

// Lines are the lines that hold the text.
func (l *Log) Lines(text string) []string {
	return slices.DeleteFunc(strings.Split(l.String(), "\n"), func(line string) bool { return !strings.Contains(line, text) })
}
