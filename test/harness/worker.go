package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// startTimeout is how long a worker may take to become ready.
const startTimeout = 60 * time.Second

// WorkerConfig says how to run a worker.
type WorkerConfig struct {
	Binary, Manifests, Data string
	// Addr is the address to listen on; empty takes a free port.
	Addr string
	// Args are further arguments.
	Args []string
	Env  []string
	Log  io.Writer
}

// Worker is a running `doorstep standalone`.
type Worker struct {
	*Process
	Addr string
	// Key is the API key that it wrote into its data folder; empty with --dev.
	Key string
	// StartedAt is when the process was started, ReadyAfter how long until /readyz
	// said 200.
	StartedAt  time.Time
	ReadyAfter time.Duration

	http *http.Client
}

// StartWorker starts a worker and waits until it is ready.
func StartWorker(ctx context.Context, c WorkerConfig) (*Worker, error) {
	if c.Addr == "" {
		addr, err := FreeAddr()
		if err != nil {
			return nil, err
		}
		c.Addr = addr
	}
	args := append([]string{"standalone", "-f", c.Manifests, "--data", c.Data, "--listen", c.Addr}, c.Args...)
	w := &Worker{Addr: c.Addr, StartedAt: time.Now(), http: &http.Client{Timeout: 30 * time.Second}}
	var err error
	if w.Process, err = Start(Command{Name: "doorstep standalone", Path: c.Binary, Args: args, Env: c.Env, Log: c.Log}); err != nil {
		return nil, err
	}
	if err := w.ready(ctx); err != nil {
		w.Kill()
		return nil, err
	}
	w.ReadyAfter = time.Since(w.StartedAt)
	key, err := os.ReadFile(filepath.Join(c.Data, "api-key"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		w.Kill()
		return nil, fmt.Errorf("reading the worker's API key: %w", err)
	}
	w.Key = strings.TrimSpace(string(key))
	return w, nil
}

func (w *Worker) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return Await(ctx, 5*time.Millisecond, "the worker to be ready", func() (bool, error) {
		if !w.Running() {
			return false, fmt.Errorf("the worker ended while it started; its last lines:\n%s", w.Tail())
		}
		resp, err := w.http.Get("http://" + w.Addr + "/readyz")
		if err != nil {
			return false, nil // not listening yet
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK, nil
	})
}

// Path is an API path of this package's namespace: Path("events") and so on.
func Path(rest string) string { return "/v1/namespaces/" + Namespace + "/" + rest }

// EventsPath is where events are posted.
var EventsPath = Path("events")

// Call makes an API call and decodes a JSON answer into out unless that is nil. A
// status that isn't 2xx is an error with the problem's words.
func (w *Worker) Call(method, path string, header http.Header, body []byte, out any) (int, error) {
	req, err := http.NewRequest(method, "http://"+w.Addr+path, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	for name, values := range header {
		req.Header[name] = values
	}
	if w.Key != "" {
		req.Header.Set("Authorization", "Bearer "+w.Key)
	}
	resp, err := w.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		return resp.StatusCode, err
	}
	if resp.StatusCode/100 != 2 {
		return resp.StatusCode, fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, bytes.TrimSpace(b))
	}
	if out == nil {
		return resp.StatusCode, nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return resp.StatusCode, fmt.Errorf("%s %s: %w", method, path, err)
	}
	return resp.StatusCode, nil
}

// Await calls check every interval until it says true or an error, or ctx ends.
func Await(ctx context.Context, interval time.Duration, what string, check func() (bool, error)) error {
	t := time.NewTicker(interval)
	defer t.Stop()
	for {
		if ok, err := check(); ok || err != nil {
			return err
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, ctx.Err())
		}
	}
}

// FreeAddr is an address of 127.0.0.1 with a port that was free a moment ago.
func FreeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("looking for a free port: %w", err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String(), nil
}

// RunWithBinary runs a package's tests (run is the Run of its testing.M) with the doorstep binary under test, whose path
// it puts into binary. It returns the exit code.
func RunWithBinary(run func() int, binary *string) int {
	dir, err := os.MkdirTemp("", "doorstep-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if *binary, err = Build(context.Background(), dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return run()
}

// Build returns the path of the doorstep binary under test: DOORSTEP_BIN if that is
// set, else one that it builds into dir.
func Build(ctx context.Context, dir string) (string, error) {
	if bin := os.Getenv("DOORSTEP_BIN"); bin != "" {
		abs, err := filepath.Abs(bin)
		if err != nil {
			return "", err
		}
		if _, err := os.Stat(abs); err != nil {
			return "", fmt.Errorf("DOORSTEP_BIN: %w", err)
		}
		return abs, nil
	}
	bin := filepath.Join(dir, "doorstep")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", bin, "github.com/doorstep-dev/doorstep/cmd/doorstep")
	// As make build does: with cgo pebble's memory would lie elsewhere, and measure less.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building doorstep: %w\n%s", err, out)
	}
	return bin, nil
}
