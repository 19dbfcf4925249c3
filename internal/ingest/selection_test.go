package ingest_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/ingest"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// choosy is an endpoint of shop that takes some events.
func choosy(name string, change func(*plan.Endpoint)) plan.Endpoint {
	e := plan.Endpoint{EndpointKey: plan.EndpointKey{Namespace: "shop", Name: name}, FirstSeen: start.Add(-time.Hour)}
	change(&e)
	return e
}

func wants(name string, pairs ...string) plan.Endpoint {
	return choosy(name, func(e *plan.Endpoint) {
		for i := 0; i < len(pairs); i += 2 {
			e.MatchAttributes = append(e.MatchAttributes, plan.Attribute{Name: pairs[i], Value: pairs[i+1]})
		}
	})
}

func filters(name, filter string) plan.Endpoint {
	return choosy(name, func(e *plan.Endpoint) { e.Filter = filter })
}

// newSelective is an API whose plan holds these endpoints of shop, and one of another namespace that takes everything.
func newSelective(t testing.TB, endpoints ...plan.Endpoint) *api {
	a := newAPI(t)
	p := &plan.Plan{Endpoints: append([]plan.Endpoint{{EndpointKey: plan.EndpointKey{Namespace: "other", Name: "all"}}}, endpoints...)}
	a.plan.Store(p)
	return a
}

// stored gives where the events went, each as "e1 e2!"; ? is undecided, ! a filter's error.
func (a *api) stored() []string {
	a.t.Helper()
	events, _ := a.queue.Stored()
	var out []string
	for _, e := range events {
		deliveries, err := a.queue.Deliveries(a.t.Context(), e.Seq)
		if err != nil {
			a.t.Fatal(err)
		}
		var names []string
		for _, d := range deliveries {
			name := d.Endpoint.Name
			switch {
			case d.State == queue.FilterError:
				name += "!"
			case d.Undecided:
				name += "?"
			}
			names = append(names, name)
		}
		out = append(out, strings.Join(names, " "))
	}
	return out
}

func TestFanOutBySelection(t *testing.T) {
	endpoints := []plan.Endpoint{
		choosy("a-all", func(*plan.Endpoint) {}),
		wants("b-customer", "customer", "42"),
		wants("c-both", "customer", "42", "region", "eu"),
		wants("d-subject", "subject", "Größe"),
		wants("e-empty", "customer", ""),
		filters("f-amount", "event.data.amount >= 1000"),
		filters("g-broken", "event.data.amount >="),
		choosy("h-everything", func(e *plan.Endpoint) {
			e.EventTypes, e.Filter = []string{"order.*"}, "event.data.amount < 5000"
			e.MatchAttributes = []plan.Attribute{{Name: "customer", Value: "42"}}
		}),
		choosy("i-suspended", func(e *plan.Endpoint) { e.Suspend, e.Filter = true, "event.data.amount == 1000" }),
		choosy("j-problem", func(e *plan.Endpoint) {
			e.Problem = &plan.Problem{Reason: "SecretNotFound"}
			e.MatchAttributes = []plan.Attribute{{Name: "flag", Value: "true"}}
		}),
	}
	const ce = "application/cloudevents+json"
	plain := func(typ, attributes, data string) string {
		return fmt.Sprintf(`{"id":"1","type":%q,"attributes":{%s},"data":%s}`, typ, attributes, data)
	}
	for _, row := range []struct {
		name, contentType, body string
		headers                 header
		want                    string
	}{
		{"nothing of it", "application/json", plain("user.made", ``, `{"amount":1}`), nil, "a-all g-broken?"},
		{"one attribute", "application/json", plain("user.made", `"customer":"42"`, `{"amount":1}`), nil, "a-all b-customer g-broken?"},
		{"two attributes", "application/json", plain("user.made", `"region":"eu","customer":"42"`, `{"amount":1}`), nil, "a-all b-customer c-both g-broken?"},
		{"another value", "application/json", plain("user.made", `"region":"eu","customer":"421"`, `{"amount":1}`), nil, "a-all g-broken?"},
		{"an empty value", "application/json", plain("user.made", `"customer":""`, `{"amount":1}`), nil, "a-all e-empty g-broken?"},
		{"a boolean", "application/json", plain("user.made", `"flag":true`, `{"amount":1}`), nil, "a-all g-broken? j-problem"},
		{"a filter", "application/json", plain("user.made", ``, `{"amount":1000}`), nil, "a-all f-amount g-broken? i-suspended"},
		{"a filter's error", "application/json", plain("user.made", ``, `{}`), nil, "a-all f-amount! g-broken? i-suspended!"},
		{"all three", "application/json", plain("order.made", `"customer":"42"`, `{"amount":1000}`), nil, "a-all b-customer f-amount g-broken? h-everything i-suspended"},
		{"the type alone is not it", "application/json", plain("user.made", `"customer":"42"`, `{"amount":1000}`), nil, "a-all b-customer f-amount g-broken? i-suspended"},

		// case IN12: attributes are found in every mode.
		{"structured", ce, `{"specversion":"1.0","id":"1","source":"/s","type":"user.made","subject":"Größe","customer":42,"flag":true,"data":{"amount":1}}`, nil,
			"a-all b-customer d-subject g-broken? j-problem"},
		{"binary", "application/json", `{"amount":1}`,
			header{"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "user.made", "ce-subject": "Gr%C3%B6%C3%9Fe", "ce-customer": "42", "ce-flag": "true"},
			"a-all b-customer d-subject g-broken? j-problem"},
		{"binary, no JSON", "text/plain", `hello`,
			header{"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "user.made"}, "a-all f-amount! g-broken? i-suspended!"},
		{"batch", "application/cloudevents-batch+json",
			`[{"specversion":"1.0","id":"1","source":"/s","type":"user.made","customer":"42","data":{"amount":1}}]`, nil, "a-all b-customer g-broken?"},
	} {
		t.Run(row.name, func(t *testing.T) {
			a := newSelective(t, endpoints...)
			h := header{"Content-Type": row.contentType}
			for k, v := range row.headers {
				h[k] = v
			}
			a.post(http.StatusAccepted, row.body, h)
			if got := a.stored(); len(got) != 1 || got[0] != row.want {
				t.Errorf("goes to %q, want %q", got, row.want)
			}
		})
	}
}

// An absent endpoint is only out of sight: it gets what it would take, and its filter is asked.
func TestFanOutToTheAbsent(t *testing.T) {
	a := newAPI(t)
	a.plan.Store(&plan.Plan{Absent: []plan.Absence{
		{Endpoint: filters("large", "event.data.id > 1")}, {Endpoint: filters("small", "event.data.id < 1")}, {Endpoint: wants("gone", "a", "1")},
	}})
	a.post(http.StatusAccepted, plainEvent("evt_1", "order.created"), nil)
	if got := fmt.Sprint(a.stored()); got != "[large]" {
		t.Errorf("goes to %s", got)
	}
}

// A hostile filter is asked first, is cut off, and uses up what all filters of the request may take; its neighbours are
// asked later, and nobody who has no filter waits or loses anything.
func TestAHostileFilterHarmsNoOther(t *testing.T) {
	var endpoints []plan.Endpoint
	for i := range 20 {
		endpoints = append(endpoints, filters(fmt.Sprintf("a-hostile-%02d", i), "event.data.all(x, event.data.all(y, x == y))"))
	}
	endpoints = append(endpoints, filters("b-neighbour", "event.data.size() > 1"), choosy("c-all", func(*plan.Endpoint) {}))
	a := newSelective(t, endpoints...)
	body := `{"id":"evt_1","type":"t","data":[` + strings.Repeat("1,", 20_000) + `1]}`
	a.post(http.StatusAccepted, body, nil)
	got := strings.Fields(a.stored()[0])
	if len(got) != 22 || !strings.HasSuffix(got[0], "!") || got[21] != "c-all" {
		t.Fatalf("goes to %v", got)
	}
	if last := got[19]; last != "a-hostile-19?" && last != "a-hostile-19!" {
		t.Errorf("the last hostile one is %s", last)
	}
	if n := got[20]; n != "b-neighbour" && n != "b-neighbour?" {
		t.Errorf("the neighbour is %s, want it there and no error", n)
	}
}

func TestExplainSelection(t *testing.T) {
	later := wants("later", "customer", "42")
	later.FirstSeen = start.Add(time.Minute)
	endpoints := []plan.Endpoint{
		wants("b-other", "customer", "43"), wants("c-none", "region", "eu"),
		filters("d-false", "event.data.amount > 1000"), filters("e-error", "event.data.missing > 1000"), filters("f-broken", "event.data >"),
	}
	a := newSelective(t, endpoints...)
	const body = `{"id":"evt_1","type":"t","attributes":{"customer":"42"},"data":{"amount":1}}`
	a.post(http.StatusAccepted, body, nil)
	// Since then the plan has changed.
	changed := append(slices.Clone(endpoints), later,
		wants("g-now", "customer", "42"), filters("h-now", "event.data.amount == 1"),
		filters("i-now-error", "event.data.missing == 1"), filters("j-now-broken", "event.data =="))
	a.plan.Store(&plan.Plan{Endpoints: changed})
	e := get[ingest.Event](a, "events/evt_1?explain")
	for _, row := range []struct{ endpoint, reason, words string }{
		{"b-other", "AttributeMismatch", `want customer to be "43", and the event has "42"`},
		{"c-none", "AttributeMismatch", `want region to be "eu", and the event has no such attribute`},
		{"d-false", "FilterFalse", "event.data.amount > 1000"},
		{"e-error", "FilterError", "at 1:11: missing is missing"},
		{"f-broken", "Pending", "has not been asked yet"},
		{"later", "CreatedLater", "known since"},
		{"g-now", "ChangedLater", "eventTypes and matchAttributes match now"},
		{"h-now", "ChangedLater", "take the event now"},
		{"i-now-error", "ChangedLater", "can't be evaluated for it"},
		{"j-now-broken", "ChangedLater", "can't be used"},
	} {
		if x := explanation(t, e, row.endpoint); x.Reason != row.reason || !strings.Contains(x.Message, row.words) {
			t.Errorf("%s: %+v, want %s with %q", row.endpoint, x, row.reason, row.words)
		}
	}
	// The filter was mended, and can tell now.
	endpoints[3].Filter = "event.data.amount > 0"
	a.plan.Store(&plan.Plan{Endpoints: endpoints})
	if x := explanation(t, get[ingest.Event](a, "events/evt_1?explain"), "e-error"); x.Reason != "FilterError" || !strings.Contains(x.Message, "it can be now") {
		t.Errorf("mended: %+v", x)
	}
}

// To explain an event, its filters are asked again for as long as those of an accepted one: not each of thousands, a tenth
// of a second long.
func TestExplainAsksHostileFiltersForAWhileOnly(t *testing.T) {
	a := newSelective(t)
	a.post(http.StatusAccepted, `{"id":"evt_1","type":"t","data":[`+strings.Repeat("1,", 20_000)+`1]}`, nil)
	endpoints := []plan.Endpoint{filters("a-first", "event.data.size() == 1")}
	for i := range 200 {
		endpoints = append(endpoints, filters(fmt.Sprintf("b-hostile-%03d", i), "event.data.all(x, event.data.all(y, x == y))"))
	}
	a.plan.Store(&plan.Plan{Endpoints: endpoints})
	e := get[ingest.Event](a, "events/evt_1?explain")
	if len(e.Explanations) != len(endpoints) {
		t.Fatalf("%d explanations", len(e.Explanations))
	}
	if x := explanation(t, e, "b-hostile-199"); x.Reason != "FilterFalse" || !strings.Contains(x.Message, "It is not asked again here") {
		t.Errorf("the last one: %+v", x)
	}
}

// BenchmarkAcceptByAttribute is one event among endpoints of a namespace that are told apart by an attribute: it must cost
// what it costs with one endpoint.
func BenchmarkAcceptByAttribute(b *testing.B) {
	for _, row := range []struct {
		name      string
		endpoints int
		filter    string
	}{{"endpoints=1", 1, ""}, {"endpoints=5000", 5000, ""}, {"endpoints=5000,filter", 5000, "event.data.n == 1"}} {
		b.Run(row.name, func(b *testing.B) {
			p := &plan.Plan{}
			for i := range row.endpoints {
				e := wants(fmt.Sprint("e", i), "customer", fmt.Sprint("cust_", i), "region", "eu")
				e.Filter = row.filter
				p.Endpoints = append(p.Endpoints, e)
			}
			a := newAPI(b, func(o *ingest.Options) { o.Queue, o.Plan = forgetful{}, func() *plan.Plan { return p } })
			body := fmt.Sprintf(`{"id":"1","type":"t","attributes":{"customer":"cust_%d","region":"eu"},"data":{"n":1,"s":%q}}`, row.endpoints/2, strings.Repeat("x", 900))
			reader := strings.NewReader(body)
			r, err := http.NewRequest(http.MethodPost, "http://127.0.0.1/v1/namespaces/shop/events", reader)
			if err != nil {
				b.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/json")
			w := &discard{header: http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := reader.Seek(0, io.SeekStart); err != nil {
					b.Fatal(err)
				}
				a.ServeHTTP(w, r)
				if w.status != http.StatusAccepted {
					b.Fatalf("status %d", w.status)
				}
			}
		})
	}
}
