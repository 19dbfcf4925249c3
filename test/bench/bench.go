package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/doorstep-dev/doorstep/test/harness"
)

// bench is one call of the benchmark.
type bench struct {
	options
	// out is where everything is printed.
	out io.Writer
	// self is this program, to be re-executed; bin is the doorstep binary.
	self, bin string
	// work is the folder of everything that is written.
	work string
	key  harness.Key
	// count numbers the runs, for ids and folders.
	count int
	// memoryDisk is set when work lies in memory, where fsync costs nothing.
	memoryDisk bool

	results results
}

func newBench(ctx context.Context, o options, out io.Writer) (*bench, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp(o.dir, "doorstep-bench-")
	if err != nil {
		return nil, err
	}
	b := &bench{options: o, out: out, self: self, work: work, key: make(harness.Key, 32)}
	if _, err := rand.Read(b.key); err != nil {
		return nil, err
	}
	if b.bin, err = harness.Build(ctx, work); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// close removes what was written. Children have ended by then.
func (b *bench) close() { _ = os.RemoveAll(b.work) }

func (b *bench) keyText() string { return "whsec_" + base64.StdEncoding.EncodeToString(b.key) }

// tmpfs is the type number of a filesystem in memory (statfs(2)).
const tmpfs = 0x01021994

// describeMachine prints what the figures depend on.
func (b *bench) describeMachine() {
	var st syscall.Statfs_t
	b.memoryDisk = syscall.Statfs(b.work, &st) == nil && st.Type == tmpfs
	fmt.Fprintf(b.out, "machine: %d cores, %s/%s, %s; one write and fsync of 4 KiB takes %v (median)\n",
		runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), fsyncTime(b.work).Round(time.Microsecond))
	fmt.Fprintf(b.out, "load: events of %d bytes over %d connections; generator, worker and sink are three processes on this machine\n", b.size, b.conns)
}

// fsyncTime is the median of 100 writes of 4 KiB, each followed by fsync; 0 if the
// folder can't be written.
func fsyncTime(dir string) time.Duration {
	f, err := os.Create(filepath.Join(dir, "fsync"))
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }()
	var times []time.Duration
	block := make([]byte, 4096)
	for range 100 {
		at := time.Now()
		if _, err := f.Write(block); err != nil {
			return 0
		}
		if err := f.Sync(); err != nil {
			return 0
		}
		times = append(times, time.Since(at))
	}
	return median(times)
}

// median is the middle value, the lower of two.
func median[T interface{ ~int64 | ~float64 }](values []T) T {
	if len(values) == 0 {
		return 0
	}
	s := slices.Clone(values)
	slices.Sort(s)
	return s[(len(s)-1)/2]
}

// nextRun gives a new run's name and its folder.
func (b *bench) nextRun() (string, string) {
	b.count++
	name := fmt.Sprintf("r%d", b.count)
	return name, filepath.Join(b.work, name)
}

// startWorker writes manifests and starts a worker with an empty store in dir.
func (b *bench) startWorker(ctx context.Context, dir string, endpoints ...harness.Endpoint) (*harness.Worker, error) {
	manifests := filepath.Join(dir, "manifests")
	if err := harness.WriteManifests(manifests, b.key, endpoints...); err != nil {
		return nil, err
	}
	return b.restartWorker(ctx, dir)
}

// restartWorker starts a worker on what is in dir.
func (b *bench) restartWorker(ctx context.Context, dir string) (*harness.Worker, error) {
	return harness.StartWorker(ctx, harness.WorkerConfig{
		Binary: b.bin, Manifests: filepath.Join(dir, "manifests"), Data: filepath.Join(dir, "data"),
	})
}

// load is the settings that all loads share.
func (b *bench) load(run string, types ...string) harness.Load {
	return harness.Load{
		Path: harness.EventsPath, Run: run, Types: types, Size: b.size,
		Conns: b.conns, Count: 8 << 20, Duration: b.duration,
	}
}

// names is prefix00, prefix01 … n of them.
func names(prefix string, n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("%s%02d", prefix, i))
	}
	return out
}

// endpointsAt is one endpoint a name, for the event type of that name, at the sink's
// path for it.
func endpointsAt(addr, path string, names []string) []harness.Endpoint {
	var out []harness.Endpoint
	for _, n := range names {
		out = append(out, harness.Endpoint{Name: n, URL: "http://" + addr + path + n, EventTypes: []string{n}})
	}
	return out
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }
