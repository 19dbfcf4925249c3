package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/doorstep-dev/doorstep/test/harness"
)

// The parts, in the order they run.
var parts = []string{"saturate", "latency", "isolation", "endpoints", "retention", "backlog"}

// options are what can be set.
type options struct {
	only  string
	quick bool
	dir   string

	runs     int
	duration time.Duration
	conns    int
	size     int
	rate     float64
	inFlight int
	backlog  int
	retained int
}

func main() {
	if len(os.Args) > 1 {
		if run, ok := children[os.Args[1]]; ok {
			harness.ExitWithParent()
			exit(run(context.Background()))
			return
		}
	}
	var o options
	flag.StringVar(&o.only, "only", "", "parts to run, with commas: "+strings.Join(parts, ", ")+" (default all)")
	flag.BoolVar(&o.quick, "quick", false, "a short run that shows that everything works; too short to judge by")
	flag.StringVar(&o.dir, "dir", "", "folder for the workers' stores, on the disk to measure (default: the system's temporary folder)")
	flag.IntVar(&o.runs, "runs", 3, "runs of each measurement; the median counts")
	flag.DurationVar(&o.duration, "duration", 10*time.Second, "length of one run")
	flag.IntVar(&o.conns, "conns", 64, "connections of the generator")
	flag.IntVar(&o.size, "size", 1024, "bytes of an event")
	flag.Float64Var(&o.rate, "rate", 2000, "events per second of the latency runs")
	flag.IntVar(&o.inFlight, "inflight", 64, "maxInFlight of the one endpoint in the saturated runs (with several endpoints each has the default)")
	flag.IntVar(&o.backlog, "backlog", 1_000_000, "events queued for a dead endpoint")
	flag.IntVar(&o.retained, "retained", 2_000_000, "delivered events that are kept")
	flag.Parse()
	if o.quick {
		o = o.shortened()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok, err := run(ctx, o, os.Stdout)
	stop()
	exit(err)
	if !ok {
		os.Exit(1)
	}
}

// shortened is a quick run: once, a second each, a small backlog.
func (o options) shortened() options {
	o.quick, o.runs, o.duration, o.backlog, o.retained, o.rate = true, 1, time.Second, 20_000, 20_000, min(o.rate, 500)
	return o
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
}

// selected is the parts to run.
func (o options) selected() ([]string, error) {
	if o.only == "" {
		return parts, nil
	}
	chosen := strings.Split(o.only, ",")
	for _, p := range chosen {
		if !slices.Contains(parts, p) {
			return nil, fmt.Errorf("-only: there is no part %q; there are %s", p, strings.Join(parts, ", "))
		}
	}
	return chosen, nil
}

// run runs the chosen parts and prints the verdict; false if a target was missed.
func run(ctx context.Context, o options, out io.Writer) (bool, error) {
	chosen, err := o.selected()
	if err != nil {
		return false, err
	}
	b, err := newBench(ctx, o, out)
	if err != nil {
		return false, err
	}
	defer b.close()
	b.describeMachine()
	if !slices.Contains(chosen, "saturate") {
		if err := b.calibrate(ctx); err != nil {
			return false, err
		}
	}
	for _, p := range chosen {
		var err error
		switch p {
		case "saturate":
			err = b.saturate(ctx)
		case "latency":
			err = b.latency(ctx)
		case "isolation":
			err = b.isolation(ctx)
		case "endpoints":
			err = b.endpoints(ctx)
		case "retention":
			err = b.retention(ctx)
		case "backlog":
			err = b.backlog(ctx)
		}
		if err != nil {
			return false, fmt.Errorf("%s: %w", p, err)
		}
	}
	return b.verdict()
}
