package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/test/harness"
)

// Pool plays the StatefulSet controller and the kubelet for the worker of one DeliveryPool: it makes the Pod and the
// volume's claim that the StatefulSet asks for, runs the Pod's container as a process of the binary under test, keeps the
// files of its volumes in step with their Secrets, restarts what ends, and reports readiness. It waits for the StatefulSet,
// and follows it: a changed template replaces the worker, a deleted one ends it. While the API server is away, it goes on
// with what it knows.
type Pool struct {
	// Name is the DeliveryPool's.
	Name types.NamespacedName
	// Log is what the worker and its predecessors wrote.
	Log *Log

	c      *Cluster
	binary string
	dir    string
	volume *volumes

	mu       sync.Mutex
	set      *appsv1.StatefulSet // as last seen
	worker   *harness.Process
	revision string // of the template that the worker runs by
	held     bool
	starts   int
	trouble  error // of the last turn
}

// pace is the time between two turns of a Pool.
const pace = 200 * time.Millisecond

// RunPool begins to play for the pool, whose manager may not have made anything yet. The worker is killed when the test
// ends.
func (c *Cluster) RunPool(t testing.TB, binary string, name types.NamespacedName) *Pool {
	t.Helper()
	p, stop, err := c.PlayPool(binary, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return p
}

// PlayPool is RunPool for programs that are no tests: they call stop, which kills the worker.
func (c *Cluster) PlayPool(binary string, name types.NamespacedName) (p *Pool, stop func(), err error) {
	dir := filepath.Join(c.Dir, "pools", name.Namespace, name.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, nil, err
	}
	p = &Pool{Name: name, Log: &Log{}, c: c, binary: binary, dir: dir, volume: newVolumes(dir)}
	ctx, cancel := context.WithCancel(context.Background())
	var loop sync.WaitGroup
	loop.Go(func() { p.run(ctx) })
	return p, func() {
		cancel()
		loop.Wait()
		if p.worker != nil {
			p.worker.Kill()
		}
	}, nil
}

// run takes a turn now and then until ctx ends.
func (p *Pool) run(ctx context.Context) {
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	for {
		p.turn(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// turn looks at the cluster and does the next thing. What goes wrong is tried again at the next turn.
func (p *Pool) turn(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	seen := p.look(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trouble = seen
	if p.set == nil {
		p.end()
		return
	}
	if seen == nil {
		p.trouble = p.prepare(ctx)
	}
	if err := p.keepRunning(); err != nil {
		p.trouble = errors.Join(p.trouble, err)
	}
	if seen == nil {
		p.trouble = errors.Join(p.trouble, p.report(ctx))
	}
}

// look reads the StatefulSet.
func (p *Pool) look(ctx context.Context) error {
	set := &appsv1.StatefulSet{}
	key := types.NamespacedName{Namespace: p.Name.Namespace, Name: v1alpha1.WorkerName(p.Name.Name)}
	err := p.c.Client.Get(ctx, key, set)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case apierrors.IsNotFound(err):
		p.set = nil
		return nil
	case err != nil:
		return err // away: what was seen last holds
	}
	p.set = set
	return nil
}

// prepare makes the claim, the Pod and the volumes what the StatefulSet asks for, and ends a worker of another template.
func (p *Pool) prepare(ctx context.Context) error {
	if err := p.ensureClaims(ctx); err != nil {
		return err
	}
	if err := p.ensurePod(ctx); err != nil {
		return err
	}
	return p.volume.sync(ctx, p.c.Client, p.set)
}

// keepRunning starts the worker where none runs, once all it needs is there.
func (p *Pool) keepRunning() error {
	if p.held || p.revision == "" || (p.worker != nil && p.worker.Running()) {
		return nil
	}
	command, err := p.volume.command(p.set, p.binary)
	if err != nil {
		return err
	}
	command.Log = p.Log
	p.worker, err = harness.Start(command)
	p.starts++
	return err
}

// end ends the worker for good, as when its Pod is deleted.
func (p *Pool) end() {
	if p.worker != nil && p.worker.Running() {
		_ = p.worker.Stop(stopGrace) // what it says on its way out is in Log
	}
	p.worker, p.revision = nil, ""
}

// stopGrace is above what a worker may take to stop.
const stopGrace = 90 * time.Second

// Kill ends the worker without a word (SIGKILL), as when it runs out of memory. It is started again at once.
func (p *Pool) Kill(t testing.TB) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.worker == nil || !p.worker.Running() {
		t.Fatalf("no worker of pool %s runs: %v", p.Name, p.trouble)
	}
	p.worker.Kill()
}

// Hold ends the worker without a word and keeps it from being started again, as when its node is lost.
func (p *Pool) Hold(t testing.TB) {
	t.Helper()
	p.mu.Lock()
	p.held = true
	p.mu.Unlock()
	p.Kill(t)
}

// Release lets the worker be started again.
func (p *Pool) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = false
}

// Terminate asks the worker to end (SIGTERM), as when its Pod is evicted. It is started again once it has.
func (p *Pool) Terminate(t testing.TB) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.worker == nil || !p.worker.Running() {
		t.Fatalf("no worker of pool %s runs: %v", p.Name, p.trouble)
	}
	if err := p.worker.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

// Pid is the process id of the running worker.
func (p *Pool) Pid(t testing.TB) int {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.worker == nil || !p.worker.Running() {
		t.Fatalf("no worker of pool %s runs: %v", p.Name, p.trouble)
	}
	return p.worker.Pid()
}

// Starts is how often a worker was started.
func (p *Pool) Starts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.starts
}

// Ingest, Metrics and Probes are where the worker listens, the same from one start to the next.
func (p *Pool) Ingest() string  { return p.volume.address("ingest") }
func (p *Pool) Metrics() string { return p.volume.address("metrics") }
func (p *Pool) Probes() string  { return p.volume.address("probes") }

// Data is the folder that stands for the worker's volume.
func (p *Pool) Data() string { return p.volume.folder(v1alpha1.QueueClaimName) }

// Plan is the folder that stands for the volume with the plan's Secrets.
func (p *Pool) Plan() string { return p.volume.folder("plan") }

// WaitReady waits until a worker is ready.
func (p *Pool) WaitReady(t testing.TB, within time.Duration) {
	t.Helper()
	Eventually(t, within, fmt.Sprintf("a worker of pool %s to be ready", p.Name), func() error {
		p.mu.Lock()
		worker, trouble := p.worker, p.trouble
		p.mu.Unlock()
		if worker == nil {
			return fmt.Errorf("none was started: %w", trouble)
		}
		if err := probe("http://" + p.Probes() + "/readyz"); err != nil {
			return fmt.Errorf("%w; its last lines:\n%s", err, worker.Tail())
		}
		return nil
	})
}
