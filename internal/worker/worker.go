package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/engine"
	"github.com/doorstep-dev/doorstep/internal/health"
	"github.com/doorstep-dev/doorstep/internal/ingest"
	"github.com/doorstep-dev/doorstep/internal/ingest/kubeauth"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/planstore"
)

// The store's place on the volume, and that of endpoints' health.
const (
	queueFolder = "queue"
	healthFile  = "health"
)

// Options say how a worker runs.
type Options struct {
	// Config says how to reach the API server.
	Config *rest.Config
	// Pool is the DeliveryPool, Pod the name of the worker's own Pod, which its Lease has too.
	Pool types.NamespacedName
	Pod  string
	// Data is the volume's folder, PlanDir that of the plan, TLSDir that of ingest's
	// certificate; empty TLSDir speaks http.
	Data, PlanDir, TLSDir string
	// Listen, Probes and Metrics are addresses; empty Metrics is none.
	Listen, Probes, Metrics string
	Grace                   time.Duration
	Version                 string
	// Planned is told how many endpoints there are with each plan; nil is nobody.
	Planned func(endpoints int)
	Log     logr.Logger
}

// outside is what a worker deals with: tests have another.
type outside struct {
	// client is for what the worker does by itself, reviews for questions about callers.
	client  client.WithWatch
	reviews client.Client
	listen  func(address, flag string) (net.Listener, error)
	// engine alters how the engine runs; nil leaves it.
	engine func(*engine.Options)
}

// worker is everything that runs.
type worker struct {
	Options
	outside
	engine *engine.Engine
	// certificates are ingest's; nil speaks http.
	certificates *certificates
	// inUse is the version that is in use and to be acknowledged; news tells of another one.
	inUse atomic.Uint64
	news  chan struct{}
}

// Run runs until ctx is done, then stops gracefully. It returns nil on such a stop.
func Run(ctx context.Context, o Options) error {
	out := outside{listen: listen}
	var err error
	if out.client, err = newClient(o.Config, 50); err != nil {
		return err
	}
	// A client of its own: a flood of callers holds up neither the plan nor the Lease.
	if out.reviews, err = newClient(o.Config, -1); err != nil {
		return err
	}
	return run(ctx, o, out)
}

func run(ctx context.Context, o Options, out outside) error {
	w := &worker{Options: o, outside: out, news: make(chan struct{}, 1)}
	if o.TLSDir != "" {
		w.certificates = newCertificates(o.TLSDir, o.Log.WithName("tls"))
	}
	// Probes first: a store may take its time to open, which is no fault.
	probes, err := w.listen(o.Probes, "--probes")
	if err != nil {
		return err
	}
	p := newProbes(w)
	stop := p.serve(probes)
	defer stop()
	if err := w.open(ctx); err != nil {
		return err
	}
	p.opened.Store(true)
	return errors.Join(w.run(ctx), w.engine.Stop())
}

// open opens what lies on the volume. The store is one process's alone, also where a
// second worker is started beside one that nobody hears of any more: whoever comes second
// ends here.
func (w *worker) open(ctx context.Context) error {
	if err := os.MkdirAll(w.Data, 0o700); err != nil {
		return fmt.Errorf("--data: %w", err)
	}
	book := health.NewBook()
	if err := book.Load(filepath.Join(w.Data, healthFile)); err != nil {
		w.Log.Error(err, "The health of endpoints is counted anew; deliveries are none the worse")
	}
	o := engine.Options{Dir: filepath.Join(w.Data, queueFolder), Grace: w.Grace, Version: w.Version, Health: book, Log: w.Log}
	if w.outside.engine != nil {
		w.outside.engine(&o)
	}
	var err error
	w.engine, err = engine.Open(ctx, o)
	return err
}

// newClient makes a client of the API server that makes so many calls a second; -1: any
// number.
func newClient(c *rest.Config, perSecond float32) (client.WithWatch, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	c = rest.CopyConfig(c)
	c.QPS, c.Burst = perSecond, 100
	c.Timeout = 0 // a watch has none, and each call one of its own
	return client.NewWithWatch(c, client.Options{Scheme: scheme})
}

// newScheme has the kinds that a worker reads and writes.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, coordinationv1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme, v1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return scheme, nil
}

func listen(address, flag string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w; choose another address with %s", address, err, flag)
	}
	return l, nil
}

func (w *worker) run(ctx context.Context) error {
	api := w.engine.API(kubeauth.New(kubeauth.Options{
		Client: w.reviews, APIKeys: ingest.PlanKeys(w.engine.Plan), Log: w.Log.WithName("auth"),
	}))
	tasks := []func(context.Context) error{w.follow, w.acknowledge, w.renew, w.saveHealth, w.statuses().Run}
	if c := w.certificates; c != nil {
		api.TLSConfig = c.config()
		tasks = append(tasks, c.watch)
	}
	if w.Metrics != "" {
		l, err := w.listen(w.Metrics, "--metrics")
		if err != nil {
			return err
		}
		tasks = append(tasks, func(ctx context.Context) error { return serveUntil(ctx, newMetrics(w), l) })
	}
	on, err := w.listen(w.Listen, "--listen")
	if err != nil {
		return err
	}
	w.startPlan(ctx)
	w.Log.Info("Takes events", "pool", w.Pool.String(), "address", on.Addr().String())
	return w.engine.Run(ctx, api, on, tasks...)
}

// startPlan takes the plan of the pod's volume, so that a container that restarts needs
// nobody. Without one, or with one that can't be read, the worker is not ready until the
// API server has given it one.
func (w *worker) startPlan(ctx context.Context) {
	p, report, err := planstore.FromDir(w.PlanDir)
	switch {
	case err != nil:
		w.Log.Error(err, "The plan in the volume can't be used; the one in the API server is waited for")
		return
	case p == nil:
		w.Log.Info("There is no plan in the volume yet; the one in the API server is waited for")
		return
	case len(report.Damaged) > 0:
		w.Log.Error(nil, "Shards of the plan in the volume are damaged or missing; endpoints that can't be read are held until the API server gives them, and events of their namespaces are refused", "shards", report.Damaged)
	}
	w.use(ctx, p, report)
}

// use makes a plan the one in use. Its version is acknowledged where all of it is here.
func (w *worker) use(ctx context.Context, p *plan.Plan, r planstore.Report) {
	if now := w.engine.Plan(); now == nil || now.Version != p.Version || !slices.Equal(now.Incomplete, p.Incomplete) || !plan.Equal(now, p) {
		w.Log.Info("The plan changed", "version", p.Version, "endpoints", len(p.Endpoints))
		w.engine.Use(ctx, p)
	}
	if len(r.Damaged) == 0 {
		w.inUse.Store(p.Version)
		select {
		case w.news <- struct{}{}:
		default:
		}
	}
	if w.Planned != nil {
		w.Planned(len(p.Endpoints))
	}
}

// follow uses each plan that the manager writes.
func (w *worker) follow(ctx context.Context) error {
	watcher := planstore.Watcher{
		Client: w.client, Pool: w.Pool, Log: w.Log.WithName("plan"),
		Use: func(ctx context.Context, p *plan.Plan, r planstore.Report) {
			w.use(ctx, w.keepDamaged(p, r), r)
		},
	}
	return watcher.Run(ctx)
}

// keepDamaged adds to a plan with damaged shards what the plan in use holds of them: a lost
// shard deletes nothing.
func (w *worker) keepDamaged(p *plan.Plan, r planstore.Report) *plan.Plan {
	now := w.engine.Plan()
	if len(r.Damaged) == 0 || now == nil {
		return p
	}
	return planstore.KeepDamaged(p, now, r)
}

// callTimeout bounds one call to the API server.
const callTimeout = 10 * time.Second

// acknowledge tells the manager of each version in use, once, and tries again until that
// is taken.
func (w *worker) acknowledge(ctx context.Context) error {
	var told uint64
	wait := time.Duration(0)
	for {
		var again <-chan time.Time
		if wait > 0 {
			again = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-w.news:
		case <-again:
		}
		version := w.inUse.Load()
		if version == told {
			wait = 0
			continue
		}
		call, cancel := context.WithTimeout(ctx, callTimeout)
		err := planstore.Acknowledge(call, w.client, w.Pool, w.Pod, version)
		cancel()
		if err != nil {
			if wait == 0 && ctx.Err() == nil {
				w.Log.Info("The plan in use can't be acknowledged; it is tried again", "error", err.Error())
			}
			wait = min(max(2*wait, time.Second), 30*time.Second)
			continue
		}
		told, wait = version, 0
	}
}

// serveUntil serves until ctx is done.
func serveUntil(ctx context.Context, h http.Handler, on net.Listener) error {
	s := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		_ = s.Close()
	})
	if err := s.Serve(on); !errors.Is(err, http.ErrServerClosed) {
		stop()
		return err
	}
	<-done
	return nil
}
