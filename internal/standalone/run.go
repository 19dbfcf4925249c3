package standalone

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/doorstep-dev/doorstep/internal/deliver"
	"github.com/doorstep-dev/doorstep/internal/dispatch"
	"github.com/doorstep-dev/doorstep/internal/ingest"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
	"github.com/doorstep-dev/doorstep/internal/queue/pebble"
)

// queueFolder is the store's place in the data folder.
const queueFolder = "queue"

// shutdownPatience is how long requests under way may take to be answered on a stop.
const shutdownPatience = 5 * time.Second

// process is everything that runs.
type process struct {
	Options
	listener net.Listener
	store    *pebble.Store
	client   *deliver.Client
	lanes    *dispatch.Dispatcher
	plan     atomic.Pointer[plan.Plan]
	planner  *planner
	api      *http.Server
}

// Run runs until ctx is done, then stops gracefully: no new events are taken,
// attempts under way finish within the grace or are given back, everything is made
// durable. It returns nil on such a stop.
func Run(ctx context.Context, o Options) error {
	p := &process{Options: o}
	if err := p.check(); err != nil {
		return err
	}
	if err := p.open(ctx); err != nil {
		return errors.Join(err, p.close())
	}
	err := p.run(ctx)
	return errors.Join(err, p.stop())
}

// open builds everything, in the order in which it depends on each other.
func (p *process) open(ctx context.Context) (err error) {
	if err := makePrivateFolder(p.Data); err != nil {
		return err
	}
	link := &listenerLink{}
	if p.store, err = p.openStore(ctx, link); err != nil {
		return err
	}
	// Only now: who connects is not kept waiting for a store that takes its time.
	if p.listener, err = net.Listen("tcp", p.Listen); err != nil {
		return fmt.Errorf("listen on %s: %w; choose another address with --listen", p.Listen, err)
	}
	if p.planner, err = newPlanner(p); err != nil {
		return err
	}
	first := p.planner.first()
	p.client = deliver.New(deliver.Options{
		Egress:  first.Pool.Egress,
		Version: p.Version,
	})
	p.lanes = dispatch.New(dispatch.Options{
		Queue: p.store, Deliver: p.client, Clock: p.store.Clock(), Log: p.Log.WithName("dispatch"),
	})
	link.to.Store(p.lanes)
	auth, err := p.authorizer()
	if err != nil {
		return err
	}
	p.api = ingest.NewServer(ingest.New(ingest.Options{
		Queue: p.store, Plan: p.plan.Load, Lanes: laneViews{p.lanes}, Authorizer: auth,
		Version: p.Version, Log: p.Log.WithName("api"),
	}))
	p.api.ErrorLog = quietServerLog(p.Log)
	// The plan last: from here on deliveries are made, and nothing can fail any more.
	p.use(ctx, first)
	p.planned(first)
	return nil
}

// openStore opens the queue. A store on a full disk may hang as it opens, which a stop
// must not wait for: the folder is freed by the end of the process.
func (p *process) openStore(ctx context.Context, link *listenerLink) (*pebble.Store, error) {
	type opened struct {
		store *pebble.Store
		err   error
	}
	result := make(chan opened, 1)
	go func() {
		s, err := pebble.Open(pebble.Options{Dir: filepath.Join(p.Data, queueFolder), Listener: link, Log: p.Log.WithName("store")})
		result <- opened{s, err}
	}()
	slow := time.NewTimer(slowOpen)
	defer slow.Stop()
	for {
		select {
		case r := <-result:
			return r.store, r.err
		case <-slow.C:
			p.Log.Info("Opening the store takes long; its disk may be full: it goes on by itself when there is room")
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

// use makes a plan the one in force.
func (p *process) use(ctx context.Context, pl *plan.Plan) {
	p.client.SetPool(pl.Pool.Egress, func() {
		p.plan.Store(pl)
		p.lanes.Apply(ctx, pl)
	})
}

// planned tells how many endpoints there are, once manifests have been read and compiled
// and what that took can be given back.
func (p *process) planned(pl *plan.Plan) {
	if p.Planned != nil {
		p.Planned(len(pl.Endpoints))
	}
}

// run runs until ctx is done or something fails.
func (p *process) run(ctx context.Context) error {
	p.greet()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := p.api.Serve(p.listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve the API: %w", err)
		}
		return nil
	})
	g.Go(func() error { return p.planner.run(ctx) })
	g.Go(func() error { return p.lanes.Run(ctx) })
	g.Go(func() error { return p.prune(ctx) })
	g.Go(func() error { return p.watchStore(ctx) })
	g.Go(func() error {
		<-ctx.Done()
		return p.stopIngest() //nolint:contextcheck // ctx is done; the stop has its own time
	})
	return g.Wait()
}

// stopIngest answers the requests under way and takes no more.
func (p *process) stopIngest() error {
	p.Log.Info("Stopping: no new events are taken", "grace", p.Grace.String())
	ctx, cancel := context.WithTimeout(context.Background(), shutdownPatience)
	defer cancel()
	if err := p.api.Shutdown(ctx); err != nil {
		// Whoever still sends hasn't been answered, and so sends again.
		return ignoreTimeout(p.api.Close())
	}
	return nil
}

func ignoreTimeout(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// stop ends what Run opened.
func (p *process) stop() error {
	if err := p.lanes.Stop(p.Grace); err != nil {
		return fmt.Errorf("stop: %w", err) // closing the store would hang as well
	}
	waiting, _ := p.waiting()
	if err := p.close(); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	p.Log.Info("Stopped: everything accepted is in the store", "waiting", waiting)
	return nil
}

// waiting counts the deliveries that wait, and those of endpoints that the plan doesn't
// have.
func (p *process) waiting() (all, lost int) {
	known := p.plan.Load().Index()
	for _, k := range p.store.Endpoints() {
		n := p.store.Counts(k).Waiting()
		all += n
		if known[k] == nil {
			lost += n
		}
	}
	return all, lost
}

// close releases what was opened, however far that got.
func (p *process) close() error {
	var errs []error
	if p.client != nil {
		p.client.Close()
	}
	if p.store != nil {
		errs = append(errs, p.store.Close())
	}
	if p.listener != nil {
		if err := p.listener.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// listenerLink passes the store's news on to the dispatcher, which is made after it.
type listenerLink struct {
	to atomic.Pointer[dispatch.Dispatcher]
}

func (l *listenerLink) Accepted(events []*queue.StoredEvent) {
	if d := l.to.Load(); d != nil {
		d.Accepted(events)
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

// laneViews shows dispatch's lanes to the API.
type laneViews struct{ *dispatch.Dispatcher }

// View gives an endpoint's lane.
func (l laneViews) View(k plan.EndpointKey) (ingest.LaneView, bool) {
	v, ok := l.Dispatcher.View(k)
	view := ingest.LaneView{
		State: ingest.LaneState(v.State.String()), Reason: v.Reason, Message: v.Message,
		Since: v.Since, RetryAt: v.RetryAt, InFlight: v.InFlight, Held: v.State.Held(), LimitedBy: v.LimitedBy,
	}
	if f := v.LastFailure; f != nil {
		view.LastFailure = &ingest.Failure{Time: f.Time, Status: f.Status, Reason: f.Reason, Message: f.Message}
	}
	return view, ok
}

// Test makes one attempt of a test event.
func (l laneViews) Test(ctx context.Context, k plan.EndpointKey) (ingest.TestAttempt, error) {
	id, a, err := l.Dispatcher.Test(ctx, k)
	var notReady *dispatch.NotReadyError
	if errors.As(err, &notReady) {
		err = ingest.EndpointNotReady(notReady.Reason, notReady.Message)
	}
	return ingest.TestAttempt{WebhookID: id, Attempt: a}, err
}

// watchStore ends the process when its store has failed for good: only a restart helps
// then, and whoever runs it restarts it.
func (p *process) watchStore(ctx context.Context) error {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		if err := p.store.Health(); errors.Is(err, queue.ErrFailed) {
			return err
		}
	}
}
