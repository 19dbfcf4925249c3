package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/doorstep-dev/doorstep/test/cluster"
	"github.com/doorstep-dev/doorstep/test/harness"
)

// options are what can be set.
type options struct {
	endpoints int
	rate      float64
	quick     bool
}

func main() {
	var o options
	flag.IntVar(&o.endpoints, "endpoints", 10_000, "endpoints to apply")
	flag.Float64Var(&o.rate, "rate", 50, "applies per second")
	flag.BoolVar(&o.quick, "quick", false, "a short run that shows that everything works; too short to judge by")
	flag.Parse()
	if o.quick {
		o = o.shortened()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok, err := run(ctx, o, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

// shortened is a quick run.
func (o options) shortened() options {
	o.quick, o.endpoints = true, 100
	return o
}

// run measures and prints the verdict; false if a target was missed.
func run(ctx context.Context, o options, out io.Writer) (ok bool, err error) {
	work, err := os.MkdirTemp("", "doorstep-bench-manager-")
	if err != nil {
		return false, err
	}
	defer func() { _ = os.RemoveAll(work) }()
	binary, err := harness.Build(ctx, work)
	if err != nil {
		return false, err
	}
	s, err := openSite(ctx, binary)
	if err != nil {
		return false, err
	}
	defer s.close()
	r := results{options: o}
	for _, step := range []func(context.Context, *site, io.Writer) error{r.apply, r.planned, r.ready, r.restart} {
		if err := step(ctx, s, out); err != nil {
			return false, fmt.Errorf("%w; the manager's last lines:\n%s\nthe worker's:\n%s", err, s.manager.Tail(), lastOf(s.pool.Log))
		}
	}
	return r.verdict(out)
}

// patience is how long is waited for what should come at once.
const patience = 2 * time.Minute

// lastOf is the end of a log.
func lastOf(l *cluster.Log) string {
	const most = 4096
	text := l.String()
	return text[max(0, len(text)-most):]
}
