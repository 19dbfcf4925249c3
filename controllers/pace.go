package controllers

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
)

// statusesPerSecond is how fast the endpoints of a pool change their status together.
const statusesPerSecond = 5

// pacer gives each endpoint of a pool a turn to write its status, where all of them have
// something to say because of the pool: statusesPerSecond of them in a second.
type pacer struct {
	now func() time.Time

	mu    sync.Mutex
	pools map[types.NamespacedName]*turns
}

// turns are those of one pool.
type turns struct {
	limiter *rate.Limiter
	due     map[types.NamespacedName]time.Time
}

// wait is how long an endpoint has to wait for its turn, which it gets when it asks first;
// 0 if it is now, and taken.
func (p *pacer) wait(pool, endpoint types.NamespacedName) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pools == nil {
		p.pools = map[types.NamespacedName]*turns{}
	}
	t := p.pools[pool]
	if t == nil {
		t = &turns{rate.NewLimiter(statusesPerSecond, 1), map[types.NamespacedName]time.Time{}}
		p.pools[pool] = t
	}
	now := p.now()
	due, waits := t.due[endpoint]
	if !waits {
		due = now.Add(t.limiter.ReserveN(now, 1).DelayFrom(now))
	}
	if left := due.Sub(now); left > 0 {
		t.due[endpoint] = due
		return left
	}
	delete(t.due, endpoint)
	return 0
}

// forget gives a turn up that is not needed any more.
func (p *pacer) forget(pool, endpoint types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.pools[pool]; t != nil {
		delete(t.due, endpoint)
	}
}

// sharedNews reports whether a change of Ready is one that comes to all endpoints of a pool
// at once. What is new about the endpoint itself waits for no others.
func sharedNews(before, after *metav1.Condition) bool {
	lost := func(c *metav1.Condition) bool { return c.Reason == v1alpha1.ReasonPoolUnavailable }
	return before != nil && before.ObservedGeneration == after.ObservedGeneration && lost(before) != lost(after)
}
