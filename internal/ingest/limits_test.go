package ingest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/doorstep-dev/doorstep/internal/ingest"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// limited is testPlan with limits.
func limited(l plan.Limits) *plan.Plan {
	p := testPlan()
	p.Pool.Limits = l
	return p
}

// sendTo posts an event to a namespace and gives the answer.
func (a *api) sendTo(namespace, id, typ string) *httptest.ResponseRecorder {
	a.t.Helper()
	return a.call(http.MethodPost, "/v1/namespaces/"+namespace+"/events", plainEvent(id, typ), nil)
}

// refused wants a 429 that names a limit, and gives how long to wait.
func (a *api) refused(w *httptest.ResponseRecorder, limit, words string) time.Duration {
	a.t.Helper()
	p := a.problem(a.want(http.StatusTooManyRequests, w))
	if p.Field != limit || !strings.Contains(p.Detail, words) || !p.Retryable {
		a.t.Fatalf("the problem is %+v, want %s and %q", p, limit, words)
	}
	seconds, err := strconv.Atoi(w.Header().Get("Retry-After"))
	if err != nil || seconds < 1 {
		a.t.Fatalf("Retry-After is %q", w.Header().Get("Retry-After"))
	}
	return time.Duration(seconds) * time.Second
}

const (
	rateLimit      = "limits.perNamespace.eventsPerSecond"
	namespaceShare = "limits.perNamespace.waitingBytesPercent"
	endpointShare  = "limits.perEndpoint.waitingBytesPercent"
)

func TestEventsPerSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		a.plan.Store(limited(plan.Limits{NamespaceEventsPerSecond: 10}))
		sent := 0
		send := func(namespace string) *httptest.ResponseRecorder {
			sent++
			return a.sendTo(namespace, fmt.Sprint("evt_", sent), "a")
		}
		for range 10 {
			a.want(http.StatusAccepted, send("shop"))
		}
		wait := a.refused(send("shop"), rateLimit, "shop")
		a.want(http.StatusAccepted, send("other")) // unharmed
		time.Sleep(wait)
		for range 10 {
			a.want(http.StatusAccepted, send("shop"))
		}
		a.refused(send("shop"), rateLimit, "10 events a second")
		// A refusal takes nothing of the rate, and the rate holds over any time.
		accepted := 0
		for range 300 {
			time.Sleep(10 * time.Millisecond)
			if send("shop").Code == http.StatusAccepted {
				accepted++
			}
		}
		if accepted < 29 || accepted > 30 {
			t.Errorf("%d events were let in within 3 s, want 30", accepted)
		}
		// A new plan changes the rate, and gives nobody a second's worth anew.
		a.plan.Store(limited(plan.Limits{NamespaceEventsPerSecond: 5}))
		a.refused(send("shop"), rateLimit, "5 events a second")
		a.plan.Store(limited(plan.Limits{}))
		for range 50 {
			a.want(http.StatusAccepted, send("shop"))
		}
	})
}

// A batch counts its elements. One of more than a second's worth goes through when nothing was sent before, and is paid
// off afterwards.
func TestEventsPerSecondOfBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		a.plan.Store(limited(plan.Limits{NamespaceEventsPerSecond: 10}))
		sent := 0
		batch := func(n int) *httptest.ResponseRecorder {
			var list []string
			for range n {
				sent++
				list = append(list, fmt.Sprintf(`{"specversion":"1.0","id":"%d","source":"/s","type":"a"}`, sent))
			}
			return a.call(http.MethodPost, "/v1/namespaces/shop/events", "["+strings.Join(list, ",")+"]",
				header{"Content-Type": "application/cloudevents-batch+json"})
		}
		a.want(http.StatusAccepted, batch(6))
		a.refused(batch(5), rateLimit, "shop")
		a.want(http.StatusAccepted, batch(4))
		time.Sleep(time.Second)
		a.want(http.StatusAccepted, batch(35))
		if wait := a.refused(batch(1), rateLimit, "shop"); wait != 3*time.Second {
			t.Errorf("after 35 at once: wait %s, want 3 s", wait)
		}
		time.Sleep(2500 * time.Millisecond)
		a.refused(batch(1), rateLimit, "shop")
		time.Sleep(100 * time.Millisecond)
		a.want(http.StatusAccepted, batch(1))
		a.want(http.StatusAccepted, batch(0)) // nothing costs nothing
	})
}

// Namespaces without endpoints share one limit, however many a producer names.
func TestNamespacesWithoutEndpointsShareARate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		a.plan.Store(limited(plan.Limits{NamespaceEventsPerSecond: 10}))
		for i := range 10 {
			a.want(http.StatusAccepted, a.sendTo(fmt.Sprint("nobody", i), "evt_1", "a"))
		}
		a.refused(a.sendTo("nobody11", "evt_1", "a"), rateLimit, "nobody11")
		a.want(http.StatusAccepted, a.sendTo("shop", "evt_1", "a"))
	})
}

// A limited producer is answered before its body is read.
func TestTheRateComesBeforeTheBody(t *testing.T) {
	a := newAPI(t)
	a.plan.Store(limited(plan.Limits{NamespaceEventsPerSecond: 1}))
	a.want(http.StatusAccepted, a.sendTo("shop", "evt_1", "a"))
	r := httptest.NewRequest(http.MethodPost, "/v1/namespaces/shop/events", neverRead{t})
	r.Host = "localhost"
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	a.refused(w, rateLimit, "shop")
}

type neverRead struct{ t *testing.T }

func (b neverRead) Read([]byte) (int, error) {
	b.t.Error("the body was read")
	return 0, fmt.Errorf("read")
}

// An endpoint that has used its share holds up what it takes itself, and nothing else.
func TestAnEndpointsShare(t *testing.T) {
	a := newAPI(t)
	size := int64(len(plainEvent("evt_10", "order.created")))
	a.queue.SetUsage(queue.Usage{CapacityBytes: 100 * size})
	a.plan.Store(limited(plan.Limits{EndpointWaitingPercent: 5}))
	for i := range 5 {
		a.want(http.StatusAccepted, a.sendTo("shop", fmt.Sprint("evt_1", i), "order.created"))
		a.finish(queue.Seq(i+1), audit, queue.Delivered, "")
	}
	w := a.sendTo("shop", "evt_20", "order.created")
	a.refused(w, endpointShare, "endpoint orders")
	if p := a.problem(w); !strings.Contains(p.Detail, "5 percent") || !strings.HasSuffix(p.Type, "/endpoint-full") {
		t.Errorf("the problem is %+v", p)
	}
	if _, accepts := a.queue.Stored(); accepts != 5 {
		t.Errorf("the store was asked %d times, want 5", accepts)
	}
	// Others are unharmed: other events of the namespace, an endpoint of the same name elsewhere.
	a.want(http.StatusAccepted, a.sendTo("shop", "evt_30", "user.created"))
	a.want(http.StatusAccepted, a.sendTo("other", "evt_30", "order.created"))
	// A producer that asks again is told of what it has, also beside new ones; a taken id is told as well.
	a.want(http.StatusOK, a.sendTo("shop", "evt_10", "order.created"))
	a.want(http.StatusConflict, a.sendTo("shop", "evt_10", "order.paid"))
	// What ends makes room, whichever way.
	a.finish(1, orders, queue.DeadLettered, queue.ReasonRejected)
	a.want(http.StatusAccepted, a.sendTo("shop", "evt_40", "order.created"))
	a.refused(a.sendTo("shop", "evt_50", "order.created"), endpointShare, "orders")
	if e := get[ingest.Endpoint](a, "endpoints/orders"); e.Deliveries.WaitingBytes != 5*size {
		t.Errorf("the endpoint shows %d bytes, want %d", e.Deliveries.WaitingBytes, 5*size)
	}
	// A batch is taken whole or not at all.
	batch := func(n int) *httptest.ResponseRecorder {
		element := func(i int) string {
			return fmt.Sprintf(`{"specversion":"1.0","id":"b%d","source":"/s","type":"order.created"}`, i)
		}
		var list []string
		for i := range n {
			list = append(list, element(i))
		}
		return a.call(http.MethodPost, "/v1/namespaces/shop/events", "["+strings.Join(list, ",")+"]",
			header{"Content-Type": "application/cloudevents-batch+json"})
	}
	events, _ := a.queue.Stored()
	for _, e := range events {
		for _, key := range e.Endpoints {
			a.queue.Record(queue.Outcome{Seq: e.Seq, Endpoint: key, To: queue.Delivered}, nil)
		}
	}
	a.refused(batch(6), endpointShare, "audit") // the first by name of those that are full
	a.want(http.StatusAccepted, batch(2))
	a.want(http.StatusOK, batch(2))
	a.want(http.StatusAccepted, batch(3)) // two are there already
}

func TestANamespacesShare(t *testing.T) {
	a := newAPI(t)
	size := int64(len(plainEvent("evt_1", "user.created")))
	a.queue.SetUsage(queue.Usage{CapacityBytes: 100 * size})
	a.plan.Store(limited(plan.Limits{NamespaceWaitingPercent: 3, EndpointWaitingPercent: 50}))
	for i := range 3 {
		a.want(http.StatusAccepted, a.sendTo("shop", fmt.Sprint("evt_", i), "user.created"))
	}
	w := a.sendTo("shop", "evt_9", "user.created")
	a.refused(w, namespaceShare, "namespace shop")
	if p := a.problem(w); !strings.Contains(p.Detail, "3 percent") || !strings.HasSuffix(p.Type, "/namespace-full") {
		t.Errorf("the problem is %+v", p)
	}
	a.want(http.StatusOK, a.sendTo("shop", "evt_1", "user.created"))
	a.want(http.StatusAccepted, a.sendTo("other", "evt_9", "user.created"))
	// What goes to nobody waits for nothing.
	a.want(http.StatusAccepted, a.sendTo("nobody", "evt_9", "user.created"))
	a.finish(1, audit, queue.Delivered, "")
	a.want(http.StatusAccepted, a.sendTo("shop", "evt_9", "user.created"))
}

// A store that can't tell its size, and a plan of before, have no limit.
func TestNoShareWithoutASize(t *testing.T) {
	for _, c := range []struct {
		capacity int64
		limits   plan.Limits
	}{{0, plan.Limits{NamespaceWaitingPercent: 1, EndpointWaitingPercent: 1}}, {100, plan.Limits{}}} {
		a := newAPI(t)
		a.queue.SetUsage(queue.Usage{CapacityBytes: c.capacity})
		a.plan.Store(limited(c.limits))
		a.accepted(20, "order.created")
	}
}
