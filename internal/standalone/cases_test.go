package standalone

import (
	"bytes"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/doorstep-dev/doorstep/internal/ingest"
)

// case RT52: 500 once, then 200.
func TestAFailureOnceIsRetried(t *testing.T) {
	s, rec := newSite(t), newReceiver(t)
	var n atomic.Int32
	rec.answer = func(w http.ResponseWriter, _ arrival) {
		if n.Add(1) == 1 {
			w.Header().Set("x-handler-version", "v7")
			w.WriteHeader(500)
			_, _ = w.Write([]byte("sorry"))
		}
	}
	s.usual(rec.URL, "retryPolicyRef: {name: quick}")
	r := s.start()
	r.send("evt_1")
	rec.await(t, 2)
	await(t, "the outcome", func() bool { return r.delivery("evt_1").State == ingest.StateDelivered })
	d := r.delivery("evt_1")
	if len(d.Attempts) != 2 {
		t.Fatalf("%d attempts, want 2", len(d.Attempts))
	}
	first, second := d.Attempts[0], d.Attempts[1]
	if first.Status != 500 || first.Outcome != "retry" || first.HandlerVersion != "v7" || string(first.Response) != "sorry" || second.Status != 200 || second.Outcome != "delivered" {
		t.Errorf("attempts are %+v and %+v", first, second)
	}
}

// case DD79: the receiver has stored the event when the attempt times out. The retry
// has the same webhook-id, and the attempt says that the receiver may have got it.
func TestATimeoutAfterTheReceiverStoredTheEvent(t *testing.T) {
	t.Parallel()
	s, rec := newSite(t), newReceiver(t)
	release := make(chan struct{})
	var n atomic.Int32
	rec.answer = func(w http.ResponseWriter, _ arrival) {
		if n.Add(1) == 1 {
			<-release
		}
		w.WriteHeader(204)
	}
	defer close(release)
	s.usual(rec.URL, "timeout: 1s", "retryPolicyRef: {name: quick}")
	r := s.start()
	r.post([]byte(`{"id":"id with spaces","type":"a.b","source":"s","data":1}`), nil)
	got := rec.await(t, 2)
	if got[0].id == "" || got[0].id != got[1].id || !bytes.Equal(got[0].body, got[1].body) {
		t.Errorf("the retry is of %q, the first was of %q", got[1].id, got[0].id)
	}
	await(t, "the outcome", func() bool { return r.delivery(got[0].id).State == ingest.StateDelivered })
	d := r.delivery(got[0].id)
	if a := d.Attempts[0]; len(d.Attempts) != 2 || a.Reason != "timeout" || a.Sent != "unknown" || a.Status != 0 || a.DurationMS < 1000 {
		t.Errorf("the first of %d attempts is %+v, want a timeout of which it is unknown whether it was received", len(d.Attempts), a)
	}
	if status, _ := r.call("POST", eventsPath+"/"+got[0].id+"/replay", []byte(`{"endpoint":"orders","force":true}`)); status >= 300 {
		t.Fatalf("the replay is answered %d", status)
	}
	if again := rec.await(t, 3)[2]; again.id != got[0].id { // case DD84
		t.Errorf("the replay is of %q, want %q", again.id, got[0].id)
	}
}

// case HD138: events for a disabled endpoint are held, visible, and delivered once it
// is enabled.
func TestEventsOfADisabledEndpointAreHeldInSight(t *testing.T) {
	s, rec := newSite(t), newReceiver(t)
	rec.status.Store(410)
	s.usual(rec.URL)
	r := s.start()
	r.send("evt_gone")
	await(t, "the lane to be disabled", func() bool { return r.endpoint("orders").Lane.State == ingest.LaneDisabled })
	rec.status.Store(204)
	for n := range 10 {
		r.send(fmt.Sprintf("evt_%d", n))
	}
	list := get[ingest.DeliveryList](r, "endpoints/orders/deliveries?state=held")
	if len(list.Items) != 10 || list.Items[0].Reason != "Disabled" {
		t.Errorf("held are %+v, want the 10 events", list.Items)
	}
	if d := r.delivery("evt_gone"); d.State != ingest.StateDeadLettered || d.Reason != "DisabledByReceiver" {
		t.Errorf("the event that was answered 410 is %+v", d)
	}
	if status, answer := r.call("POST", "/v1/namespaces/shop/endpoints/orders/enable", []byte(`{}`)); status != 200 {
		t.Fatalf("enable is answered %d: %s", status, answer)
	}
	rec.await(t, 11)
	if status, answer := r.call("POST", eventsPath+"/evt_gone/replay", []byte(`{}`)); status >= 300 {
		t.Fatalf("the replay is answered %d: %s", status, answer)
	}
	await(t, "everything to be delivered", func() bool { return r.endpoint("orders").Deliveries.Waiting == 0 })
	for id, n := range rec.byID() {
		if want := map[bool]int{true: 2, false: 1}[id == "evt_gone"]; n != want {
			t.Errorf("%s arrived %d times, want %d", id, n, want)
		}
	}
}
