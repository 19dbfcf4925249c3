package standalone

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/doorstep-dev/doorstep/internal/ingest"
	"github.com/doorstep-dev/doorstep/internal/manifest"
)

// whsec finds a signing key in what is printed.
var whsec = regexp.MustCompile(`whsec_[A-Za-z0-9+/=]+`)

func TestAnEventTravelsFromProducerToReceiver(t *testing.T) {
	s, rec := newSite(t), newReceiver(t)
	s.usual(rec.URL+"/in", "eventTypes: [order.*]")
	r := s.start()
	body := []byte(`{ "id":"evt_1", "type":"order.created","data":{"n":12345678901234567890} }`)
	if got := r.post(body, nil); got.WebhookID != "evt_1" || got.Endpoints != 1 {
		t.Errorf("receipt is %+v", got)
	}
	a := rec.await(t, 1)[0]
	if a.path != "/in" || a.id != "evt_1" || !bytes.Equal(a.body, body) {
		t.Errorf("arrived at %s as %s: %s", a.path, a.id, a.body)
	}
	if err := verified(keyA, a); err != nil {
		t.Errorf("the reference library refuses it: %v", err)
	}
	if got := a.header.Get("user-agent"); got != "Doorstep/test" {
		t.Errorf("user agent is %q", got)
	}
	await(t, "the delivery to be recorded", func() bool { return r.delivery("evt_1").State == ingest.StateDelivered })
	if got := r.post([]byte(`{"id":"evt_2","type":"invoice.paid","data":1}`), nil); got.Endpoints != 0 {
		t.Errorf("an event of another type goes to %d endpoints, want 0", got.Endpoints)
	}
}

func TestTheAPINeedsItsKey(t *testing.T) {
	s, rec := newSite(t), newReceiver(t)
	s.usual(rec.URL)
	r := s.start()
	info, err := os.Stat(APIKeyFile(s.data))
	if err != nil || info.Mode() != 0o600 {
		t.Fatalf("the key's file: %v, %v; want mode 0600", info, err)
	}
	if !strings.HasPrefix(r.key, "dsk_") || strings.Contains(r.out.String()+r.log.String(), r.key) {
		t.Errorf("the key is no key, or it is printed")
	}
	for name, header := range map[string]string{"none": "", "another": "Bearer dsk_standalone_00000000000000000000000000000000", "not Bearer": r.key} {
		status, _ := r.call("POST", eventsPath, []byte(`{"id":"1","type":"a","data":1}`), func(q *http.Request) {
			q.Header.Del("Authorization")
			if header != "" {
				q.Header.Set("Authorization", header)
			}
		})
		if status != 401 {
			t.Errorf("with key %s: %d, want 401", name, status)
		}
	}
	key := r.key
	r.stop()
	again := s.start()
	if again.key != key {
		t.Error("a restart made another key")
	}
	again.send("evt_1")
	rec.await(t, 1)
}

func TestDevNeedsNoKeyButKeepsWebPagesOut(t *testing.T) {
	s, rec := newSite(t), newReceiver(t)
	s.write("orders.yaml", "apiVersion: doorstep.dev/v1alpha1\nkind: WebhookEndpoint\nmetadata: {name: orders, namespace: shop}\nspec: {url: "+rec.URL+"}\n")
	r := s.start(dev)
	if r.key != "" {
		t.Error("--dev made an API key")
	}
	r.send("evt_1") // loopback and http need no pool
	a := rec.await(t, 1)[0]
	// case SG37: whoever writes the receiver can learn the key that was made for it.
	key := whsec.FindString(r.out.String())
	if err := verified(key, a); err != nil {
		t.Errorf("by the key that was printed (%q): %v", key, err)
	}
	body := []byte(`{"id":"1","type":"a","data":1}`)
	if status, _ := r.call("POST", eventsPath, body, func(q *http.Request) { q.Host = "doorstep.example.com" }); status != 403 {
		t.Errorf("another Host is answered %d, want 403", status)
	}
	if status, _ := r.call("POST", eventsPath, body, func(q *http.Request) { q.Header.Set("Origin", "http://localhost") }); status != 403 {
		t.Errorf("a web page is answered %d, want 403", status)
	}
	r.stop()
	again := s.start(dev)
	if strings.Contains(again.out.String(), "whsec_") {
		t.Error("the key is printed a second time")
	}
	again.send("evt_2")
	if err := verified(key, rec.await(t, 2)[1]); err != nil {
		t.Errorf("after a restart, by the same key: %v", err)
	}
}

// Nothing here is ever dialled: the endpoint is refused before.
func TestDevRefusesWhatIsNotLoopback(t *testing.T) {
	s, rec := newSite(t), newReceiver(t)
	s.usual(rec.URL)
	s.write("prod-key.yaml", secretYAML("prod-key", keyA))
	s.write("prod.yaml", endpointYAML("prod", "https://hooks.invalid/in?token=hush"))
	r := s.start(dev)
	if p := r.problems(); len(p) != 1 || !strings.Contains(p[0], "prod.yaml:5: WebhookEndpoint shop/prod: spec.url: --dev sends to loopback only, and hooks.invalid is not: add --forward-to") {
		t.Errorf("problems: %q", p)
	}
	if strings.Contains(r.log.String(), "hush") {
		t.Error("the query string is in the log")
	}
	r.send("evt_1")
	rec.await(t, 1)
	e := r.endpoint("prod")
	if e.Ready || e.Problem == nil || e.Problem.Reason != "URLInvalid" || e.Lane.State != ingest.LaneUnresolved || e.Deliveries.Waiting != 1 {
		t.Errorf("prod is %+v, want it unresolved with its event held", e)
	}
	r.stop()
	// The held event goes to the laptop, once everything does.
	s.start(forwardTo(rec.URL + "/laptop"))
	for _, a := range rec.await(t, 2)[1:] {
		if a.path != "/laptop" || a.id != "evt_1" {
			t.Errorf("%s arrived at %s", a.id, a.path)
		}
	}
}

func TestForwardToTakesThePlaceOfEveryAddress(t *testing.T) {
	s, rec := newSite(t), newReceiver(t)
	s.write("key.yaml", secretYAML("a-key", keyA)+"---\n"+secretYAML("b-key", keyB))
	s.write("ab.yaml", endpointYAML("a", "https://a.invalid/in")+"---\n"+endpointYAML("b", "https://b.invalid/in", "poolRef: {name: other, namespace: infra}"))
	r := s.start(forwardTo(rec.URL + "/laptop?x=1"))
	r.send("evt_1")
	keys := map[string]bool{}
	for _, a := range rec.await(t, 2) {
		for _, key := range []string{keyA, keyB} {
			if verified(key, a) == nil {
				keys[key] = true
			}
		}
		if a.path != "/laptop" {
			t.Errorf("arrived at %s", a.path)
		}
	}
	if len(keys) != 2 {
		t.Errorf("%d of the endpoints signed with their own key, want 2", len(keys))
	}
	if p := r.problems(); len(p) != 0 {
		t.Errorf("problems: %q", p)
	}
}

func TestForwardToNeedsNoManifests(t *testing.T) {
	s, rec := newSite(t), newReceiver(t)
	r := s.start(forwardTo(rec.URL), func(o *Options) { o.Dir = "" })
	if status, answer := r.call("POST", "/v1/namespaces/default/events", []byte(`{"id":"evt_1","type":"anything","data":1}`)); status != 202 {
		t.Fatalf("%d: %s", status, answer)
	}
	if err := verified(whsec.FindString(r.out.String()), rec.await(t, 1)[0]); err != nil {
		t.Error(err)
	}
}

// Manifests that this run does not read are neither sent to the laptop nor deleted.
func TestForwardToAloneHoldsWhatManifestsSaidBefore(t *testing.T) {
	s, rec := newSite(t), newReceiver(t)
	rec.status.Store(500)
	s.usual(rec.URL + "/orders")
	r := s.start()
	r.send("evt_1")
	rec.await(t, 1)
	r.stop()
	laptop := newReceiver(t)
	r = s.start(forwardTo(laptop.URL), func(o *Options) { o.Dir = "" })
	if e := r.endpoint("orders"); e.Lane.State != ingest.LaneNotInPlan || e.Deliveries.Waiting != 1 {
		t.Errorf("orders is %+v, want it held", e)
	}
	if status, answer := r.call("POST", "/v1/namespaces/default/events", []byte(`{"id":"evt_2","type":"a.b","data":1}`)); status != 202 {
		t.Fatalf("%d: %s", status, answer)
	}
	laptop.await(t, 1)
	r.stop()
	p, err := manifest.ReadPlan(s.data)
	if err != nil || len(p.Absent) != 1 || !p.Absent[0].Since.IsZero() {
		t.Errorf("the plan has %+v as absent (%v), want orders for no counted time", p.Absent, err)
	}
	rec.status.Store(204)
	s.usual(rec.URL+"/orders", "retryPolicyRef: {name: quick}")
	s.start()
	rec.await(t, 2)
	if laptop.byID()["evt_1"] != 0 {
		t.Error("the other endpoint's event came to the laptop")
	}
}

// Payloads and keys are for the owner alone, also in a data folder that everybody may list.
func TestTheDataAreForTheirOwnerAlone(t *testing.T) {
	s, rec := newSite(t), newReceiver(t)
	s.write("pool.yaml", poolYAML)
	s.write("orders.yaml", "apiVersion: doorstep.dev/v1alpha1\nkind: WebhookEndpoint\nmetadata: {name: orders, namespace: shop}\nspec: {url: "+rec.URL+"}\n")
	if err := os.Mkdir(s.data, 0o755); err != nil {
		t.Fatal(err)
	}
	r := s.start()
	r.send("evt_1")
	rec.await(t, 1)
	r.stop()
	entries, err := os.ReadDir(s.data)
	if err != nil || len(entries) < 4 {
		t.Fatalf("the data folder holds %v, %v", entries, err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v, %v; want nothing for others", e.Name(), info.Mode(), err)
		}
	}
}

func TestOptionsThatDoNotGoTogether(t *testing.T) {
	s := newSite(t)
	file := filepath.Join(s.manifests, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*Options)
		want   []string
	}{
		"nothing to run":         {func(o *Options) { o.Dir = "" }, []string{"-f", "--dev --forward-to"}},
		"forward without dev":    {func(o *Options) { o.ForwardTo = "http://127.0.0.1:1/" }, []string{"--forward-to needs --dev"}},
		"forward to no URL":      {forwardTo("localhost:3000"), []string{"--forward-to: url must begin with"}},
		"forward with a user":    {forwardTo("http://u:hush@localhost/"), []string{"--forward-to: url must not hold a user name"}},
		"no data":                {func(o *Options) { o.Data = "" }, []string{"--data is needed"}},
		"data is a file":         {func(o *Options) { o.Data = file }, []string{"--data: "}},
		"data in a file":         {func(o *Options) { o.Data = filepath.Join(file, "x") }, []string{"--data: "}},
		"data is the manifests":  {func(o *Options) { o.Data = s.manifests + "/" }, []string{"-f and --data are the same folder"}},
		"no such manifests":      {func(o *Options) { o.Dir = filepath.Join(s.data, "nowhere") }, []string{"-f ", "no such file"}},
		"listen to all":          {func(o *Options) { o.Listen = ":8080" }, []string{"--listen :8080", "loopback"}},
		"listen to all, in dev":  {func(o *Options) { o.Dev, o.Listen = true, "0.0.0.0:8080" }, []string{"--listen 0.0.0.0:8080", "loopback"}},
		"listen to a name":       {func(o *Options) { o.Listen = "localhost.invalid:8080" }, []string{"--listen", "loopback"}},
		"listen without a port":  {func(o *Options) { o.Listen = "127.0.0.1" }, []string{"--listen 127.0.0.1", "host:port"}},
		"listen to no such port": {func(o *Options) { o.Listen = "127.0.0.1:99999" }, []string{"listen on 127.0.0.1:99999", "--listen"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := Run(t.Context(), s.options(c.change))
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error is %v, want one with %q", err, want)
				}
			}
			if err != nil && strings.Contains(err.Error(), "hush") {
				t.Errorf("the password is in the error: %v", err)
			}
		})
	}
}
