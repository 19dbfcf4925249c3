package ingest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// rates hold each namespace to limits.perNamespace.eventsPerSecond. There is one limiter for each namespace that has
// endpoints, and one for all others together, so that nobody makes more of them by naming namespaces.
type rates struct {
	mu       sync.Mutex
	fan      *fanout
	limiters map[string]*rate.Limiter
}

// take takes n events of a namespace's rate, and gives 0, or how long to wait until that many are allowed again.
//
// The burst is the rate: a second's worth. More than that at once, as a batch may be, goes through when the bucket is
// full and is paid off afterwards, since it could never go through otherwise.
func (l *rates) take(fan *fanout, namespace string, n int, now time.Time) time.Duration {
	perSecond := fan.plan.Pool.Limits.NamespaceEventsPerSecond
	if perSecond <= 0 || n <= 0 {
		return 0
	}
	limiter := l.of(fan, namespace, perSecond)
	first := limiter.ReserveN(now, min(n, perSecond))
	if wait := first.DelayFrom(now); wait > 0 {
		first.CancelAt(now)
		return wait
	}
	for rest := n - perSecond; rest > 0; rest -= perSecond {
		limiter.ReserveN(now, min(rest, perSecond))
	}
	return 0
}

// of gives a namespace's limiter. A new plan changes the rate of those that are there and drops those of namespaces
// that are gone.
func (l *rates) of(fan *fanout, namespace string, perSecond int) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fan != fan {
		for name, limiter := range l.limiters {
			if name != "" && fan.in(name) == nil {
				delete(l.limiters, name)
				continue
			}
			if limiter.Burst() != perSecond {
				limiter.SetLimit(rate.Limit(perSecond))
				limiter.SetBurst(perSecond)
			}
		}
		l.fan = fan
	}
	if fan.in(namespace) == nil {
		namespace = ""
	}
	limiter := l.limiters[namespace]
	if limiter == nil {
		if l.limiters == nil {
			l.limiters = make(map[string]*rate.Limiter)
		}
		limiter = rate.NewLimiter(rate.Limit(perSecond), perSecond)
		l.limiters[namespace] = limiter
	}
	return limiter
}

const (
	limitRate           = "limits.perNamespace.eventsPerSecond"
	limitNamespaceShare = "limits.perNamespace.waitingBytesPercent"
	limitEndpointShare  = "limits.perEndpoint.waitingBytesPercent"
)

// shareRetry is how long a producer is asked to wait where deliveries must end before there is room.
const shareRetry = 15 * time.Second

// overRate refuses n events that come too fast; nil lets them in.
func (s *Server) overRate(fan *fanout, namespace string, n int) *Problem {
	wait := s.rates.take(fan, namespace, n, time.Now())
	if wait == 0 {
		return nil
	}
	return tooMany("rate-limited", limitRate, fmt.Sprintf("The namespace %s sends more than the %d events a second that "+
		"its pool allows; nothing was stored. Try again.", namespace, fan.plan.Pool.Limits.NamespaceEventsPerSecond), max(wait, time.Second))
}

// overShare refuses events for which the namespace, or one of the endpoints that take them, has no room left; nil lets
// them in. Events that are in the store already need no room: a producer that asks again must be told that they are.
func (s *Server) overShare(ctx context.Context, p *plan.Plan, events []queue.NewEvent) (*Problem, error) {
	problem := s.shares(p, events)
	if problem == nil {
		return nil, nil
	}
	fresh := events[:0:0]
	for _, e := range events {
		known, err := s.queue.Find(ctx, e.Event.Namespace, e.Event.WebhookID)
		switch {
		case errors.Is(err, queue.ErrNotFound):
			fresh = append(fresh, e)
		case known == nil:
			return nil, err
		}
		// A known identity is a duplicate or a conflict: either takes no room.
	}
	if len(fresh) == len(events) {
		return problem, nil
	}
	return s.shares(p, fresh), nil
}

// shares looks whether there is room for all of the events, which are of one namespace.
func (s *Server) shares(p *plan.Plan, events []queue.NewEvent) *Problem {
	namespacePercent, endpointPercent := p.Pool.Limits.NamespaceWaitingPercent, p.Pool.Limits.EndpointWaitingPercent
	capacity := s.queue.Usage().CapacityBytes
	if capacity <= 0 || len(events) == 0 {
		return nil
	}
	var size int64
	for _, e := range events {
		if len(e.Endpoints) > 0 { // the others wait for nothing
			size += int64(len(e.Event.Body))
		}
	}
	if size == 0 {
		return nil
	}
	namespace := events[0].Event.Namespace
	if most := share(capacity, namespacePercent); most > 0 && s.queue.NamespaceWaiting(namespace)+size > most {
		return tooMany("namespace-full", limitNamespaceShare, fmt.Sprintf("What waits for delivery in the namespace %s has "+
			"reached its share of the store, %d percent; nothing was stored. Its deliveries go on; try again when some have "+
			"ended.", namespace, namespacePercent), shareRetry)
	}
	if most := share(capacity, endpointPercent); most > 0 {
		for key, size := range perEndpoint(events) {
			if s.queue.Counts(key).WaitingBytes+size > most {
				return endpointFull(key.Name, endpointPercent)
			}
		}
	}
	return nil
}

func endpointFull(name string, percent int) *Problem {
	return tooMany("endpoint-full", limitEndpointShare, fmt.Sprintf("What waits for the endpoint %s, which takes this event, "+
		"has reached its share of the store, %d percent; nothing was stored. Events that this endpoint does not take are let "+
		"in. See GET …/endpoints/%s for what holds it up.", name, percent, name), shareRetry)
}

// perEndpoint gives the bytes that each endpoint would get. Of one event, as nearly always, nothing is added up.
func perEndpoint(events []queue.NewEvent) iter.Seq2[plan.EndpointKey, int64] {
	return func(yield func(plan.EndpointKey, int64) bool) {
		if len(events) == 1 {
			for _, key := range events[0].Endpoints {
				if !yield(key, int64(len(events[0].Event.Body))) {
					return
				}
			}
			return
		}
		sums := make(map[plan.EndpointKey]int64)
		for _, e := range events {
			for _, key := range e.Endpoints {
				sums[key] += int64(len(e.Event.Body))
			}
		}
		for _, key := range slices.SortedFunc(maps.Keys(sums), plan.EndpointKey.Compare) { // the same is named each time
			if !yield(key, sums[key]) {
				return
			}
		}
	}
}

// share is a percentage of the store's volume; 0 for no limit.
func share(capacity int64, percent int) int64 { return capacity / 100 * int64(percent) }

func tooMany(kind, limit, detail string, after time.Duration) *Problem {
	p := newProblem(http.StatusTooManyRequests, kind, limit, detail)
	p.Retryable, p.retryAfter = true, after
	return p
}
