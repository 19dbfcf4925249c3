package engine

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"

	"github.com/doorstep-dev/doorstep/internal/deliver"
	"github.com/doorstep-dev/doorstep/internal/dispatch"
	"github.com/doorstep-dev/doorstep/internal/health"
	"github.com/doorstep-dev/doorstep/internal/ingest"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
	"github.com/doorstep-dev/doorstep/internal/queue/pebble"
)

// shutdownPatience is how long requests under way may take to be answered on a stop.
const shutdownPatience = 5 * time.Second

// Options say how an Engine runs.
type Options struct {
	// Dir is the store's folder.
	Dir string
	// Grace is how long attempts in flight may take to finish on a stop.
	Grace time.Duration
	// Version goes into the user agent and /version.
	Version string
	Log     logr.Logger
	// Health, if set, is told of every attempt and every event.
	Health *health.Book
	// Store, if set, alters how the store is opened, and Deliver makes attempts in place of
	// the client: tests keep the store in memory and answer by themselves.
	Store   func(*pebble.Options)
	Deliver dispatch.Deliverer
}

// Engine is the data plane of one process.
type Engine struct {
	Options
	store  *pebble.Store
	client *deliver.Client
	lanes  *dispatch.Dispatcher
	plan   atomic.Pointer[plan.Plan]
}

// Open opens the store and makes everything else. No plan is in force yet.
func Open(ctx context.Context, o Options) (*Engine, error) {
	e := &Engine{Options: o}
	link := &listenerLink{health: o.Health}
	var err error
	if e.store, err = e.openStore(ctx, link); err != nil {
		return nil, err
	}
	e.client = deliver.New(deliver.Options{Version: o.Version})
	var by dispatch.Deliverer = e.client
	if o.Deliver != nil {
		by = o.Deliver
	}
	e.lanes = dispatch.New(dispatch.Options{
		Queue: e.store, Deliver: by, Clock: e.store.Clock(), Observe: e.observer(), Log: o.Log.WithName("dispatch"),
	})
	link.to.Store(e.lanes)
	return e, nil
}

// observer takes attempts down in the Book; nil without one.
func (e *Engine) observer() func(*queue.Outcome) {
	book := e.Health
	if book == nil {
		return nil
	}
	return func(o *queue.Outcome) {
		a := health.Attempt{
			At: e.store.Clock().Now(), Wall: o.Attempt.StartedAt, OK: o.To == queue.Delivered, Duration: o.Attempt.Duration,
			Failure: health.Failure{Status: o.Attempt.Status, Reason: o.Attempt.Reason, Message: o.Attempt.Message},
		}
		book.Attempted(o.Endpoint, &a)
	}
}

// openStore opens the queue. A store on a full disk may hang as it opens, which a stop
// must not wait for: the folder is freed by the end of the process.
func (e *Engine) openStore(ctx context.Context, link *listenerLink) (*pebble.Store, error) {
	type opened struct {
		store *pebble.Store
		err   error
	}
	result := make(chan opened, 1)
	options := pebble.Options{Dir: e.Dir, Listener: link, Log: e.Log.WithName("store")}
	if e.Options.Store != nil {
		e.Options.Store(&options)
	}
	go func() {
		s, err := pebble.Open(options)
		result <- opened{s, err}
	}()
	slow := time.NewTimer(slowOpen)
	defer slow.Stop()
	for {
		select {
		case r := <-result:
			return r.store, r.err
		case <-slow.C:
			e.Log.Info("Opening the store takes long; its disk may be full: it goes on by itself when there is room")
		case <-ctx.Done():
			select {
			case r := <-result:
				return r.store, r.err
			case <-time.After(shutdownPatience):
				return nil, errors.New("stopped while the store was being opened; nothing was changed")
			}
		}
	}
}

// slowOpen is when opening the store is told to take long.
const slowOpen = 10 * time.Second

// Store is the queue.
func (e *Engine) Store() *pebble.Store { return e.store }

// Lanes are the endpoints' lanes.
func (e *Engine) Lanes() *dispatch.Dispatcher { return e.lanes }

// Plan is the plan in force; nil before the first Use. It is never changed.
func (e *Engine) Plan() *plan.Plan { return e.plan.Load() }

// Use makes a plan the one in force. From the first one on deliveries are made, once Run
// runs.
func (e *Engine) Use(ctx context.Context, p *plan.Plan) {
	p = e.name(ctx, p)
	e.client.SetPool(p.Pool.Egress, func() {
		e.plan.Store(p)
		e.lanes.Apply(ctx, p)
	})
}

// API makes the server of the HTTP API, with those let in whom auth lets in.
func (e *Engine) API(auth ingest.Authorizer) *http.Server {
	s := ingest.NewServer(ingest.New(ingest.Options{
		Queue: e.store, Plan: e.plan.Load, Lanes: laneViews{e.lanes}, Authorizer: auth,
		Version: e.Version, Log: e.Log.WithName("api"),
	}))
	s.ErrorLog = quietServerLog(e.Log)
	return s
}

// Run runs the engine, the API on a listener (by TLS where the server has a configuration
// for it), and tasks beside them, until ctx is done or one of them fails; then it takes no
// more events. Stop comes after it.
func (e *Engine) Run(ctx context.Context, api *http.Server, on net.Listener, tasks ...func(context.Context) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if api.TLSConfig != nil {
			on = tls.NewListener(on, api.TLSConfig)
		}
		if err := api.Serve(on); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve the API: %w", err)
		}
		return nil
	})
	for _, task := range append(tasks, e.lanes.Run, e.prune, e.watchStore) {
		g.Go(func() error { return task(ctx) })
	}
	g.Go(func() error {
		<-ctx.Done()
		return e.stopAPI(api) //nolint:contextcheck // ctx is done; the stop has its own time
	})
	return g.Wait()
}

// stopAPI answers the requests under way and takes no more.
func (e *Engine) stopAPI(api *http.Server) error {
	e.Log.Info("Stopping: no new events are taken", "grace", e.Grace.String())
	ctx, cancel := context.WithTimeout(context.Background(), shutdownPatience)
	defer cancel()
	if err := api.Shutdown(ctx); err != nil {
		// Whoever still sends hasn't been answered, and so sends again.
		return ignoreTimeout(api.Close())
	}
	return nil
}

func ignoreTimeout(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// Stop gives attempts in flight the grace and closes the store.
func (e *Engine) Stop() error {
	if err := e.lanes.Stop(e.Grace); err != nil {
		return fmt.Errorf("stop: %w", err) // closing the store would hang as well
	}
	waiting, _ := e.Waiting()
	if err := e.Close(); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	e.Log.Info("Stopped: everything accepted is in the store", "waiting", waiting)
	return nil
}

// Close releases everything, without waiting for attempts.
func (e *Engine) Close() error {
	e.client.Close()
	return e.store.Close()
}

// Waiting counts the deliveries that wait, and those of endpoints that the plan doesn't
// have.
func (e *Engine) Waiting() (all, lost int) {
	var known map[plan.EndpointKey]*plan.Endpoint
	if p := e.Plan(); p != nil {
		known = p.Index()
	}
	for _, k := range e.store.Endpoints() {
		n := e.store.Counts(k).Waiting()
		all += n
		if known[k] == nil {
			lost += n
		}
	}
	return all, lost
}

// listenerLink passes the store's news on to the dispatcher, which is made after it.
type listenerLink struct {
	to     atomic.Pointer[dispatch.Dispatcher]
	health *health.Book
}

func (l *listenerLink) Accepted(events []*queue.StoredEvent) {
	if d := l.to.Load(); d != nil {
		d.Accepted(events)
	}
	if l.health == nil {
		return
	}
	now := time.Now()
	for _, e := range events {
		for _, k := range e.Endpoints {
			l.health.Accepted(k, now)
		}
	}
}

func (l *listenerLink) Requeued(del queue.Delivery) {
	if d := l.to.Load(); d != nil {
		d.Requeued(del)
	}
}

func (l *listenerLink) Erased(seq queue.Seq, endpoints []plan.EndpointKey) {
	if d := l.to.Load(); d != nil {
		d.Erased(seq, endpoints)
	}
}

// watchStore ends the process when its store has failed for good: only a restart helps
// then, and whoever runs it restarts it.
func (e *Engine) watchStore(ctx context.Context) error {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		if err := e.store.Health(); errors.Is(err, queue.ErrFailed) {
			return err
		}
	}
}

// quietServerLog passes net/http's complaints about clients on at a low level.
func quietServerLog(l logr.Logger) *log.Logger { return log.New(serverLog{l.V(1)}, "", 0) }

type serverLog struct{ logr.Logger }

func (s serverLog) Write(b []byte) (int, error) {
	s.Info("HTTP server: " + strings.TrimSpace(string(b)))
	return len(b), nil
}
