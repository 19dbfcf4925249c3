package rotation

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/test/harness"
)

// post sends one event.
func (s *site) post(id string) {
	s.t.Helper()
	body := fmt.Sprintf(`{"id":%q,"type":"order.created","data":{"amount":1000.00}}`, id)
	if _, err := s.worker.Call(http.MethodPost, harness.EventsPath, nil, []byte(body), nil); err != nil {
		s.t.Fatal(err)
	}
}

// delivery is what the API says of an event's delivery.
type delivery struct {
	State    string `json:"state"`
	Reason   string `json:"reason"`
	Attempts []any  `json:"attempts"`
}

func (s *site) delivery(id string) delivery {
	s.t.Helper()
	var list struct {
		Deliveries []delivery `json:"deliveries"`
	}
	if _, err := s.worker.Call(http.MethodGet, harness.Path("events/"+id), nil, nil, &list); err != nil {
		s.t.Fatal(err)
	}
	if len(list.Deliveries) != 1 {
		s.t.Fatalf("%s has %d deliveries, want 1", id, len(list.Deliveries))
	}
	return list.Deliveries[0]
}

// A Secret that goes while events wait: no attempt is made, unsigned or otherwise, and no
// attempt is used up; when it is back they arrive. case ROT-04
func TestALostSecretHoldsEverything(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, 0)
	s := newSite(t, r, "")
	s.post("evt_before")
	s.await(10*time.Second, "the first event", func() bool { return r.count() == 1 })
	if err := harness.WriteManifest(s.manifests, "pool.yaml", harness.PoolManifest); err != nil {
		t.Fatal(err)
	}
	s.await(10*time.Second, "the endpoint to be held", func() bool {
		return strings.Contains(s.log.String(), "[SecretNotFound]")
	})
	s.post("evt_held")
	s.await(10*time.Second, "the event to be held", func() bool { return s.delivery("evt_held").State == "held" })
	if d := s.delivery("evt_held"); len(d.Attempts) != 0 || d.Reason != "Unresolved" {
		t.Errorf("the delivery is %+v, want one held without an attempt", d)
	}
	s.rotate(1)
	s.await(10*time.Second, "the held event", func() bool { return r.count() == 2 })
	if d := s.delivery("evt_held"); len(d.Attempts) != 1 {
		t.Errorf("it took %d attempts, want 1", len(d.Attempts))
	}
	r.look(func() {
		for _, q := range r.requests {
			if q.signatures == 0 {
				t.Errorf("%s came unsigned", q.id)
			}
		}
		// The Secret came back with another value: the one before it still signs.
		if last := r.requests[len(r.requests)-1]; fmt.Sprint(last.by) != "[0 1]" {
			t.Errorf("the held event is signed by keys %v, want both", last.by)
		}
	})
}

// What is replayed is signed with the time and the key of then, under the same id. case SG41
func TestAReplayIsSignedAnew(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, 0)
	s := newSite(t, r, "rotationOverlap: 0s, ")
	s.post("evt_1")
	s.await(10*time.Second, "the event", func() bool { return r.count() == 1 })
	s.rotate(1)
	s.post("evt_2")
	s.await(10*time.Second, "the new key", func() (ok bool) {
		r.look(func() { ok = r.newest == 1 && r.known == 1 })
		if !ok {
			s.post(fmt.Sprintf("evt_%d", time.Now().UnixNano()))
		}
		return ok
	})
	if _, err := s.worker.Call(http.MethodPost, harness.Path("events/evt_1/replay"), nil, []byte(`{"endpoint":"orders","force":true}`), nil); err != nil {
		t.Fatal(err)
	}
	ofFirst := func() (all []request) {
		r.look(func() {
			for _, q := range r.requests {
				if q.id == "evt_1" {
					all = append(all, q)
				}
			}
		})
		return all
	}
	s.await(10*time.Second, "the replay", func() bool { return len(ofFirst()) == 2 })
	first, second := ofFirst()[0], ofFirst()[1]
	if fmt.Sprint(first.by, second.by) != "[0] [1]" {
		t.Errorf("signed by keys %v and %v, want the key of each time", first.by, second.by)
	}
	if a, b := first.header.Get("webhook-signature"), second.header.Get("webhook-signature"); a == b {
		t.Error("the replay has the first attempt's signature")
	}
}

// A hundred deliveries through a rotation: no key shows in any header, body, log line or
// answer of the API, in no form. case SG40
func TestKeysShowNowhere(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, 0)
	s := newSite(t, r, "")
	for n := range 100 {
		if n == 50 {
			s.rotate(1)
		}
		s.post(fmt.Sprintf("evt_%d", n))
	}
	s.await(20*time.Second, "all events", func() bool { return r.count() == 100 })
	s.rotate(2)
	if err := os.WriteFile(filepath.Join(s.manifests, "bad.yaml"), []byte(strings.NewReplacer("name: signing", "name: bad", `"}`, `\n"}`).
		Replace(harness.SecretManifest(keyNumber(3)))+"---\n"+strings.NewReplacer("name: orders", "name: bad", "name: signing", "name: bad").
		Replace(harness.Endpoint{Name: "orders", URL: "http://" + r.addr}.Manifest())), 0o600); err != nil {
		t.Fatal(err)
	}
	s.await(10*time.Second, "the bad key to be told of", func() bool { return strings.Contains(s.log.String(), "trailing newline") })

	seen := map[string]string{"the log": s.log.String()}
	r.look(func() {
		for _, q := range r.requests {
			seen["a delivery"] += fmt.Sprint(q.header) + string(q.body)
		}
	})
	for _, path := range []string{"endpoints", "endpoints/orders", "endpoints/bad", "events", "events/evt_1", "endpoints/orders/deliveries"} {
		var answer any
		if _, err := s.worker.Call(http.MethodGet, harness.Path(path), nil, nil, &answer); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		seen[path] = fmt.Sprint(answer)
	}
	for n := range 4 {
		key := keyNumber(n)
		for _, form := range []string{string(key), base64.StdEncoding.EncodeToString(key), base64.RawURLEncoding.EncodeToString(key), hex.EncodeToString(key)} {
			for where, text := range seen {
				if strings.Contains(text, form) {
					t.Errorf("key %d shows in %s", n, where)
				}
			}
		}
	}
	if !strings.Contains(seen["a delivery"], "v1,") || len(seen["the log"]) == 0 {
		t.Error("nothing was looked at")
	}
}
