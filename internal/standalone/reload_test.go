package standalone

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/ingest"
)

// live is how soon a change of a file is in force. One look that comes late on a busy
// machine says nothing, so the median of the edits is held to it.
const live = 2 * time.Second

// reloads measures how long edits take to be in force.
type reloads struct {
	*running
	rec  *receiver
	n    int
	took []time.Duration
}

// until sends events until one arrives of which check is true, and notes how long ago
// the edit was.
func (r *reloads) until(what string, edited time.Time, check func(arrival) bool) {
	r.t.Helper()
	await(r.t, what, func() bool {
		r.n++
		r.send(fmt.Sprintf("evt_%05d", r.n))
		return slices.ContainsFunc(r.rec.seen(), check)
	})
	r.took = append(r.took, time.Since(edited))
}

func (r *reloads) check() {
	r.t.Helper()
	slices.Sort(r.took)
	if median := r.took[len(r.took)/2]; median > live {
		r.t.Errorf("edits are in force after %v, want within %v", r.took, live)
	}
}

func at(path string) func(arrival) bool { return func(a arrival) bool { return a.path == path } }

func TestAnEditIsInForceWithinTwoSeconds(t *testing.T) {
	s, rec := newSite(t), newReceiver(t)
	s.usual(rec.URL + "/0")
	r := &reloads{running: s.start(), rec: rec}
	r.until("the first", time.Now(), at("/0"))

	edited := time.Now()
	s.write("orders.yaml", endpointYAML("orders", rec.URL+"/1"))
	r.until("another URL, by rename", edited, at("/1"))

	edited = time.Now()
	if err := os.WriteFile(filepath.Join(s.manifests, "orders.yaml"), []byte(endpointYAML("orders", rec.URL+"/2")), 0o600); err != nil {
		t.Fatal(err)
	}
	r.until("another URL, written in place", edited, at("/2"))

	edited = time.Now()
	s.write("orders-key.yaml", secretYAML("orders-key", keyB))
	r.until("another key", edited, func(a arrival) bool { return verified(keyB, a) == nil })

	rec.status.Store(500)
	r.send("evt_waits")
	await(t, "a failure", func() bool { return r.delivery("evt_waits").State == ingest.StateRetrying })
	rec.status.Store(204)
	edited = time.Now()
	s.write("orders.yaml", endpointYAML("orders", rec.URL+"/3", "retryPolicyRef: {name: quick}"))
	await(t, "another policy, for what waits already", func() bool { return r.delivery("evt_waits").State == ingest.StateDelivered })
	r.took = append(r.took, time.Since(edited))

	edited = time.Now()
	s.write("new.yaml", secretYAML("new-key", keyA)+"---\n"+endpointYAML("new", rec.URL+"/new"))
	r.until("a new endpoint", edited, at("/new"))
	r.check()
	if p := r.problems(); len(p) != 0 {
		t.Errorf("problems: %q", p)
	}
}

// A ConfigMap volume is a folder of links through ..data, which is swapped as a whole.
func TestASwapOfAConfigMapVolumeIsInForceWithinTwoSeconds(t *testing.T) {
	s, rec := newSite(t), newReceiver(t)
	version := func(n int) {
		t.Helper()
		name := fmt.Sprintf("..2026_%d", n)
		if err := os.Mkdir(filepath.Join(s.manifests, name), 0o700); err != nil {
			t.Fatal(err)
		}
		text := poolYAML + "---\n" + secretYAML("orders-key", keyA) + "---\n" + endpointYAML("orders", fmt.Sprintf("%s/%d", rec.URL, n))
		if err := os.WriteFile(filepath.Join(s.manifests, name, "all.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{
			os.Symlink(name, filepath.Join(s.manifests, "..data_tmp")),
			os.Rename(filepath.Join(s.manifests, "..data_tmp"), filepath.Join(s.manifests, "..data")),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	version(0)
	if err := os.Symlink("..data/all.yaml", filepath.Join(s.manifests, "all.yaml")); err != nil {
		t.Fatal(err)
	}
	r := &reloads{running: s.start(), rec: rec}
	for n := range 4 {
		edited := time.Now()
		if n > 0 {
			version(n)
		}
		r.until("the version", edited, at(fmt.Sprintf("/%d", n)))
	}
	r.check()
}

func TestABadEditLeavesTheFormerVersionAndIsReportedOnce(t *testing.T) {
	s, rec := newSite(t), newReceiver(t)
	s.usual(rec.URL + "/good")
	r := s.start()
	s.write("orders.yaml", endpointYAML("orders", rec.URL+"/bad", "maxInFlight: 0"))
	await(t, "the report", func() bool { return len(r.problems()) > 0 })
	r.send("evt_1")
	if a := rec.await(t, 1)[0]; a.path != "/good" {
		t.Errorf("arrived at %s, want the former version's /good", a.path)
	}
	// Another change makes another plan; the same problem is not told again.
	s.write("new.yaml", secretYAML("new-key", keyA)+"---\n"+endpointYAML("new", rec.URL+"/new"))
	await(t, "the other change", func() bool { return len(get[ingest.EndpointList](r, "endpoints").Items) == 2 })
	p := r.problems()
	if len(p) != 1 || !strings.Contains(p[0], "orders.yaml:7: WebhookEndpoint shop/orders: spec.maxInFlight: ") || !strings.Contains(p[0], "(the former version stays in force)") {
		t.Errorf("problems: %q, want one with file, line and field", p)
	}
	// Mended and broken again, it is news.
	s.write("orders.yaml", endpointYAML("orders", rec.URL+"/mended"))
	re := &reloads{running: r, rec: rec}
	re.until("the mended version", time.Now(), at("/mended"))
	s.write("orders.yaml", endpointYAML("orders", rec.URL+"/bad", "maxInFlight: 0"))
	await(t, "the second report", func() bool { return len(r.problems()) == 2 })
	if slices.ContainsFunc(rec.seen(), at("/bad")) {
		t.Error("something arrived at the refused address")
	}
}

// cases QD102: a bad object affects only itself, from the start.
func TestBadObjectsAffectOnlyThemselves(t *testing.T) {
	s, rec := newSite(t), newReceiver(t)
	s.usual(rec.URL + "/good")
	bad := map[string]string{
		"url":      endpointYAML("url", `"http://[::1%25eth0]:x/%zz"`),
		"control":  endpointYAML("control", `"https://a.invalid/\u0000"`),
		"policy":   endpointYAML("policy", rec.URL+"/bad", "retryPolicyRef: {name: nowhere}"),
		"timeout":  endpointYAML("timeout", rec.URL+"/bad", "timeout: 0s"),
		"key":      endpointYAML("key", rec.URL+"/bad"),
		"unknown":  endpointYAML("unknown", rec.URL+"/bad", "nosuchfield: 1"),
		"infinite": "apiVersion: doorstep.dev/v1alpha1\nkind: RetryPolicy\nmetadata: {name: infinite, namespace: shop}\nspec: {backoff: {exponential: {initial: 1s, factor: .inf, max: 1h, maxAttempts: 3}}}\n",
		"not-yaml": "a: [\n",
		"no-kind":  "apiVersion: v1\nmetadata: {name: x}\n",
	}
	for name, text := range bad {
		s.write(name+".yaml", text)
	}
	r := s.start()
	for name := range bad {
		if !slices.ContainsFunc(r.problems(), func(p string) bool { return strings.Contains(p, "/"+name+".yaml") }) {
			t.Errorf("%s is not reported: %q", name, r.problems())
		}
	}
	r.send("evt_1")
	rec.await(t, 1)
	await(t, "the delivery", func() bool { return r.endpoint("orders").Deliveries.Waiting == 0 })
	if n := rec.count(); n != 1 {
		t.Errorf("%d arrivals, want the good endpoint's one", n)
	}
	for _, e := range get[ingest.EndpointList](r, "endpoints").Items {
		if (e.Name == "orders") != e.Ready {
			t.Errorf("%s: ready is %t", e.Name, e.Ready)
		}
	}
}
