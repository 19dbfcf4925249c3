package main

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
	"time"

	"github.com/doorstep-dev/doorstep/test/harness"
)

// children are the programs that this one is re-executed as. They take their
// settings from the environment, so that no key shows in a list of processes.
var children = map[string]func(context.Context) error{
	"gen":   runGenerator,
	"sink":  runSink,
	"relay": runRelay,
}

const (
	envLoad   = "BENCH_LOAD"   // a harness.Load as JSON
	envListen = "BENCH_LISTEN" // the address to listen on
	envKey    = "BENCH_KEY"    // the signing key
	envTarget = "BENCH_TARGET" // where the relay posts to
)

// verifyEvery is how many deliveries the sink takes for one signature that it checks.
const verifyEvery = 100

func runGenerator(ctx context.Context) error {
	var load harness.Load
	if err := json.Unmarshal([]byte(os.Getenv(envLoad)), &load); err != nil {
		return fmt.Errorf("reading %s: %w", envLoad, err)
	}
	result, err := load.Do(ctx)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

func runSink(context.Context) error {
	key, err := harness.ParseKey(os.Getenv(envKey))
	if err != nil {
		return err
	}
	return serve(&harness.Sink{Key: key, VerifyEvery: verifyEvery})
}

// serve serves h on the address of the environment until the process is ended.
func serve(h http.Handler) error {
	s := &http.Server{Addr: os.Getenv(envListen), Handler: h, ReadHeaderTimeout: 10 * time.Second}
	return s.ListenAndServe()
}

// generate runs a generator process to its end.
func (b *bench) generate(ctx context.Context, load harness.Load) (harness.LoadResult, error) {
	settings, err := json.Marshal(load)
	if err != nil {
		return harness.LoadResult{}, err
	}
	var out bytes.Buffer
	p, err := harness.Start(harness.Command{
		Name: "generator", Path: b.self, Args: []string{"gen"},
		Env: []string{envLoad + "=" + string(settings)}, Stdout: &out,
	})
	if err != nil {
		return harness.LoadResult{}, err
	}
	defer p.Kill()
	select {
	case <-p.Exited():
	case <-time.After(load.Duration + time.Minute):
		return harness.LoadResult{}, errors.New("the generator did not end in time")
	case <-ctx.Done():
		return harness.LoadResult{}, ctx.Err()
	}
	if code, err := p.Wait(time.Minute); err != nil || code != 0 {
		return harness.LoadResult{}, fmt.Errorf("the generator ended with exit code %d: %s", code, p.Tail())
	}
	var r harness.LoadResult
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		return r, fmt.Errorf("reading the generator's result: %w", err)
	}
	if r.Failed > 0 {
		return r, fmt.Errorf("%d events of the load failed; the first: %s", r.Failed, r.FirstError)
	}
	return r, nil
}

// sink is a running sink process.
type sink struct {
	*harness.Process
	addr string
}

// startSink starts a sink on addr (a free port if it is empty) that expects the
// events of run.
func (b *bench) startSink(ctx context.Context, addr, run string) (*sink, error) {
	if addr == "" {
		var err error
		if addr, err = harness.FreeAddr(); err != nil {
			return nil, err
		}
	}
	p, err := b.startHelper(ctx, "sink", addr, "")
	if err != nil {
		return nil, err
	}
	s := &sink{Process: p, addr: addr}
	if err := s.call("/-/reset?run="+run, nil); err != nil {
		p.Kill()
		return nil, err
	}
	return s, nil
}

// startHelper re-executes this program and waits until it listens.
func (b *bench) startHelper(ctx context.Context, name, addr, target string) (*harness.Process, error) {
	p, err := harness.Start(harness.Command{
		Name: name, Path: b.self, Args: []string{name},
		Env: []string{envListen + "=" + addr, envKey + "=" + b.keyText(), envTarget + "=" + target},
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	err = harness.Await(ctx, 5*time.Millisecond, "the "+name+" to listen", func() (bool, error) {
		if !p.Running() {
			return false, fmt.Errorf("the %s ended at its start: %s", name, p.Tail())
		}
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return false, nil // not yet
		}
		return true, c.Close()
	})
	if err != nil {
		p.Kill()
		return nil, err
	}
	return p, nil
}

// call makes a steering call to the sink and decodes its answer unless out is nil.
func (s *sink) call(path string, out any) error {
	c := http.Client{Timeout: 20 * time.Second}
	resp, err := c.Get("http://" + s.addr + path)
	if err != nil {
		return fmt.Errorf("asking the sink: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("asking the sink: %s, %w", resp.Status, err)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(body, out)
}

// await waits until n different events have arrived, or until none has for quiet,
// or until limit, and returns what arrived.
func (s *sink) await(ctx context.Context, n int64, quiet, limit time.Duration) (harness.SinkStats, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var st harness.SinkStats
	last, since := int64(-1), time.Now()
	err := harness.Await(ctx, 50*time.Millisecond, "deliveries", func() (bool, error) {
		if err := s.call("/-/stats", &st); err != nil {
			return false, err
		}
		if got := st.Unique; got != last {
			last, since = got, time.Now()
		}
		return st.Unique >= n || time.Since(since) > quiet, nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil // what is missing is counted as lost
	}
	if err == nil && (st.BadSignatures > 0 || st.Foreign > 0) {
		err = fmt.Errorf("the sink saw %d bad signatures (%s) and %d unknown ids", st.BadSignatures, st.BadWhy, st.Foreign)
	}
	return st, err
}
