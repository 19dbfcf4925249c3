package dispatch

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/doorstep-dev/doorstep/internal/clock"
	"github.com/doorstep-dev/doorstep/internal/deliver"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// Deliverer makes one attempt. deliver.Client is one.
type Deliverer interface {
	Do(ctx context.Context, r *deliver.Request) deliver.Result
}

// Options make a Dispatcher.
type Options struct {
	Queue   queue.Queue
	Deliver Deliverer
	// Clock must be the queue's.
	Clock *clock.Clock
	// Rand gives numbers in [0,1) for jitter; nil is math/rand/v2.
	Rand func() float64
	// Observe, if set, is told of each attempt as it ends, from the goroutine that made it;
	// not of tests. It must be short.
	Observe func(*queue.Outcome)
	Log     logr.Logger
}

// Dispatcher runs the lanes of one pool. It is the queue's Listener.
type Dispatcher struct {
	queue   queue.Queue
	deliver Deliverer
	clock   *clock.Clock
	rand    func() float64
	observe func(*queue.Outcome)
	log     logr.Logger

	// attempts is the context of all attempts; cut ends those that outlast a stop's grace.
	attempts context.Context
	cut      context.CancelFunc
	work     sync.WaitGroup // workers

	mu    sync.Mutex
	lanes map[plan.EndpointKey]*lane
	// deleted are the plan's tombstones.
	deleted map[plan.EndpointKey]time.Time
	// ring holds the lanes that may have something to do; workers take them in turn.
	ring   []*lane
	parked []*lane
	// maxInFlight is the pool's limit; workers is how many run, inFlight how many of
	// them are making an attempt, busyLanes how many lanes have one in flight.
	maxInFlight, workers, inFlight, busyLanes int
	cached                                    int // bytes of payloads in windows
	stopping                                  bool
	// dropResponses keeps no answer's body with its attempt.
	dropResponses bool
	// turned is when a worker last looked for something to do; beat when Run last saw
	// that this works, in steady nanoseconds.
	turned    time.Time
	beat      atomic.Int64
	upkeepNow chan struct{}
}

var _ queue.Listener = (*Dispatcher)(nil)

// ErrNoLane means that an endpoint is known to neither the plan nor the queue.
var ErrNoLane = errors.New("no such endpoint")

// New makes a dispatcher with a lane for every endpoint that the queue knows. They
// are held until Apply gives it a plan.
func New(o Options) *Dispatcher {
	d := &Dispatcher{
		queue: o.Queue, deliver: o.Deliver, clock: o.Clock, rand: o.Rand, observe: o.Observe, log: o.Log,
		lanes: map[plan.EndpointKey]*lane{}, maxInFlight: 1,
		upkeepNow: make(chan struct{}, 1),
	}
	if d.rand == nil {
		d.rand = rand.Float64 //nolint:gosec // jitter is no secret
	}
	d.beat.Store(d.clock.Now().UnixNano())
	d.attempts, d.cut = context.WithCancel(context.Background())
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range o.Queue.Endpoints() {
		d.lane(k).known = true
	}
	return d
}

// lane gives an endpoint's lane, made on first sight. What the queue holds for it
// already is caught up with from one attempt in flight, each at its own due time.
func (d *Dispatcher) lane(k plan.EndpointKey) *lane {
	if l := d.lanes[k]; l != nil {
		return l
	}
	now := d.clock.Now()
	l := &lane{
		key: k, hold: NotInPlan, holdSince: now, flying: map[queue.Seq]struct{}{}, landed: map[queue.Seq]struct{}{},
		stored: d.queue.Lane(k),
	}
	l.flow.since = now
	switch {
	case l.stored.Disabled:
		l.flow.enter(Disabled, l.stored.Reason, l.stored.At)
	case l.stored.BackingOff:
		l.flow.resume(l.stored.Reason, l.stored.Until, now)
	case d.queue.Counts(k).Waiting() > 0:
		l.flow.drain(false, now)
	}
	if at, ok := d.deleted[k]; ok {
		l.absent(at, now) // an event that was matched before the deletion was seen
	}
	l.freshMore, l.nextDue = true, now
	l.timer = time.AfterFunc(time.Hour, func() { d.wakeLocked(l) })
	l.timer.Stop()
	d.lanes[k] = l
	return l
}

// Accepted takes new events, in the order of their sequence numbers.
func (d *Dispatcher) Accepted(events []*queue.StoredEvent) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, ev := range events {
		size := share(ev)
		for _, k := range ev.Endpoints {
			l := d.lane(k)
			del := ev.New(k)
			if !del.State.Waiting() {
				continue
			}
			if l.arrived(ev, del, d.cached+size <= cacheBytes) {
				d.cached += size
			}
			d.wake(l)
		}
	}
}

// Requeued takes a replayed delivery.
func (d *Dispatcher) Requeued(del queue.Delivery) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.lane(del.Endpoint)
	if key := l.line.keyOf(&del); key == 0 {
		l.note(del.DueAt)
	} else {
		l.line.queued(key, del)
	}
	d.wake(l)
}

// Erased lets go of a payload that must not be sent any more: what the lanes have in
// memory is read anew.
func (d *Dispatcher) Erased(_ queue.Seq, endpoints []plan.EndpointKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range endpoints {
		l := d.lane(k)
		d.reread(l, d.clock.Now())
		d.wake(l)
	}
}

// reread forgets what is in memory of a lane's waiting deliveries: the store is read anew.
func (d *Dispatcher) reread(l *lane, now time.Time) {
	ordering := ""
	if l.target != nil {
		ordering = l.target.Ordering
	}
	d.cached -= l.restart(ordering, now)
}

// uncache counts a payload that a window has let go of.
func (d *Dispatcher) uncache(it *item) {
	d.cached -= it.cached()
}

func (d *Dispatcher) wakeLocked(l *lane) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wake(l)
}

// wake puts a lane into the ready ring and sees to it that a worker looks.
func (d *Dispatcher) wake(l *lane) {
	if !l.ready && !d.stopping {
		l.ready = true
		d.ring = append(d.ring, l)
	}
	d.hire()
}

// hire starts a worker if there is something to do and a place for it.
func (d *Dispatcher) hire() {
	if len(d.ring) == 0 || d.workers >= d.maxInFlight || d.stopping {
		return
	}
	d.workers++
	d.work.Go(d.worker)
}

// job is what a worker does next.
type job struct {
	decision
	lane   *lane
	target *target
	item   item
	epoch  int
	// for a load
	want want
}

// worker does jobs until there are none.
func (d *Dispatcher) worker() {
	for {
		j, ok := d.next()
		if !ok {
			return
		}
		if j.decision == load {
			d.load(j)
		} else {
			d.attempt(j)
		}
	}
}

// next takes the next job: of the ready lanes in turn, what pick chooses.
func (d *Dispatcher) next() (job, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock.Now()
	d.turned = now
	for len(d.ring) > 0 && !d.stopping && d.workers <= d.maxInFlight {
		l := d.ring[0]
		d.ring[0] = nil
		d.ring = d.ring[1:]
		l.ready = false
		share := d.share()
		dec, it, wake := l.pick(now, share)
		if n := l.line; n != nil {
			d.cached, n.let = d.cached-n.let, 0
		}
		switch dec {
		case idle:
			if l.inFlight >= share && !l.parked {
				l.parked = true
				d.parked = append(d.parked, l)
			}
			if l.drained(now) {
				d.lookAround() // to store it
			}
			d.arm(l, now, wake)
			continue
		case load:
			l.loading = true
			j := job{decision: load, lane: l, want: l.want(now)}
			d.hire()
			return j, true
		case attempt:
			l.flying[it.Seq] = struct{}{}
			if l.inFlight == 0 {
				d.busyLanes++
			}
			l.inFlight++
			d.inFlight++
			d.uncache(&it)
			d.wake(l) // it may have more; others come first
			return job{decision: attempt, lane: l, target: l.target, item: it, epoch: l.flow.epoch}, true
		}
	}
	d.workers--
	return job{}, false
}

// share is how many attempts a lane may have in flight, as far as the others are
// concerned: once three quarters of the pool's attempts are open, an equal part of
// them, with one part left for whoever comes next.
func (d *Dispatcher) share() int {
	if d.maxInFlight-d.inFlight > d.maxInFlight/4 {
		return d.maxInFlight
	}
	return max(1, d.maxInFlight/(d.busyLanes+1))
}

// arm wakes the lane at a time, if that is before what it waits for already.
func (d *Dispatcher) arm(l *lane, now, at time.Time) {
	if at.IsZero() || !l.wakeAt.IsZero() && !l.wakeAt.After(at) && l.wakeAt.After(now) {
		return
	}
	l.wakeAt = at
	l.timer.Reset(max(at.Sub(now), 0))
}

// landed ends an attempt: its slot is free, its delivery still flying.
func (d *Dispatcher) landed(l *lane) {
	l.inFlight--
	d.inFlight--
	if l.inFlight == 0 {
		d.busyLanes--
	}
	for _, p := range d.parked {
		p.parked = false
		d.wake(p)
	}
	clear(d.parked)
	d.parked = d.parked[:0]
	d.wake(l)
}
