package ingest_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/ingest"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// oldest gets a page of events, the oldest first.
func (a *api) oldest(cursor, more string) ingest.EventList {
	a.t.Helper()
	query := url.Values{"order": {"oldest"}}
	if cursor != "" {
		query.Set("cursor", cursor)
	}
	return get[ingest.EventList](a, "events?"+query.Encode()+more)
}

func ids(events []ingest.Event) []string {
	var list []string
	for _, e := range events {
		list = append(list, e.WebhookID)
	}
	return list
}

// A consumer that goes on by the cursor gets each event once and none not, whatever arrives while it reads, and
// whatever happens to the events meanwhile.
func TestAConsumerReconciles(t *testing.T) {
	a := newAPI(t)
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test's choices
	var want, got []string
	cursor, atEnd := "", false
	for len(got) < 500 {
		for range random.IntN(8) {
			id := fmt.Sprint("evt_", len(want))
			want = append(want, id)
			a.post(http.StatusAccepted, plainEvent(id, "order.created"), nil)
			// Of other namespaces nothing is seen.
			a.want(http.StatusAccepted, a.call(http.MethodPost, "/v1/namespaces/other/events", plainEvent(id, "order.created"), nil))
		}
		page := a.oldest(cursor, fmt.Sprint("&limit=", 1+random.IntN(6)))
		if page.Cursor == "" {
			t.Fatal("a page of the oldest first has no cursor")
		}
		got = append(got, ids(page.Items)...)
		if page.AtEnd && len(got) != len(want) {
			t.Fatalf("told to be at the end after %d of %d", len(got), len(want))
		}
		atEnd = atEnd || page.AtEnd
		cursor = page.Cursor
	}
	for page := a.oldest(cursor, ""); len(got) < len(want); page = a.oldest(cursor, "") {
		got, cursor = append(got, ids(page.Items)...), page.Cursor
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d events were listed, %d accepted, not the same in the same order", len(got), len(want))
	}
	if !atEnd {
		t.Error("the end was never reached before: the test reads too slowly to show anything")
	}
}

func TestAConsumerBeginsAtATime(t *testing.T) {
	a := newAPI(t)
	now := start
	a.queue.Now = func() time.Time { return now }
	for i := range 10 {
		now = start.Add(time.Duration(i) * time.Minute)
		typ := []string{"order.created", "user.created"}[i%2]
		a.post(http.StatusAccepted, plainEvent(fmt.Sprint("evt_", i), typ), nil)
	}
	since := "&since=" + start.Add(5*time.Minute).Format(time.RFC3339)
	page := a.oldest("", since)
	if got := ids(page.Items); !slices.Equal(got, []string{"evt_5", "evt_6", "evt_7", "evt_8", "evt_9"}) || !page.AtEnd {
		t.Errorf("since the sixth: %v, at the end: %v", got, page.AtEnd)
	}
	if got := ids(a.oldest("", since+"&type=user.*").Items); !slices.Equal(got, []string{"evt_5", "evt_7", "evt_9"}) {
		t.Errorf("of a type: %v", got)
	}
	if got := ids(a.oldest("", since+"&until="+start.Add(7*time.Minute).Format(time.RFC3339)).Items); !slices.Equal(got, []string{"evt_5", "evt_6"}) {
		t.Errorf("of a span: %v", got)
	}
	// Who comes before there is anything gets a cursor for what comes.
	later := "&since=" + start.Add(time.Hour).Format(time.RFC3339)
	first := a.oldest("", later)
	if len(first.Items) != 0 || !first.AtEnd {
		t.Fatalf("before there is anything: %+v", first)
	}
	now = start.Add(2 * time.Hour)
	a.post(http.StatusAccepted, plainEvent("evt_10", "order.created"), nil)
	if got := ids(a.oldest(first.Cursor, later).Items); !slices.Equal(got, []string{"evt_10"}) {
		t.Errorf("after it: %v", got)
	}
	// A cursor belongs to its order.
	newest := get[ingest.EventList](a, "events?limit=1")
	if newest.AtEnd {
		t.Error("newest first, the end is told by the cursor alone")
	}
	for _, path := range []string{"events?order=oldest&cursor=" + newest.Cursor, "events?cursor=" + first.Cursor} {
		w := a.want(http.StatusBadRequest, a.call(http.MethodGet, "/v1/namespaces/shop/"+path, "", nil))
		if a.problem(w).Field != "cursor" {
			t.Errorf("%s: %s", path, w.Body)
		}
	}
}

// Lists of deliveries take the same spans as lists of events: of acceptance.
func TestDeliveriesOfASpan(t *testing.T) {
	a := newAPI(t)
	now := start
	a.queue.Now = func() time.Time { return now }
	for i := range 10 {
		now = start.Add(time.Duration(i) * time.Minute)
		a.post(http.StatusAccepted, plainEvent(fmt.Sprint("evt_", i), "order.created"), nil)
		if i%2 == 0 {
			a.finish(queue.Seq(i+1), orders, queue.DeadLettered, queue.ReasonRejected)
		}
	}
	at := func(minute int) string { return start.Add(time.Duration(minute) * time.Minute).Format(time.RFC3339) }
	for _, c := range []struct {
		path string
		want int
	}{
		{"endpoints/orders/deliveries?since=" + at(5), 5},
		{"endpoints/orders/deliveries?until=" + at(5), 5},
		{"endpoints/orders/deliveries?since=" + at(3) + "&until=" + at(6), 3},
		{"endpoints/orders/deliveries?state=deadLettered&since=" + at(3), 3},
		{"deliveries?since=" + at(8), 4},
		{"deliveries?since=" + at(60), 0},
		{"deliveries?until=" + at(0), 0},
	} {
		for _, limit := range []int{1, 2, 100} {
			items, _ := follow(a, c.path, limit, func(b []byte) ([]ingest.Delivery, string) {
				l := decode[ingest.DeliveryList](t, b)
				return l.Items, l.Cursor
			})
			if len(items) != c.want {
				t.Errorf("%s by %d: %d deliveries, want %d", c.path, limit, len(items), c.want)
			}
		}
	}
}
