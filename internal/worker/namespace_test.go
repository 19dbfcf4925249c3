package worker

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A namespace that is deleted and made anew inherits nothing, also where the worker starts
// again from a plan that still speaks of the former one.
func TestANamespaceMadeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		first := planOf(1, "orders")
		first.Endpoints[0].NamespaceUID, first.Endpoints[0].Suspend = "u1", true
		s.publish(first)
		s.project()
		r := s.start()
		code, body := r.send("evt_1")
		r.want(http.StatusAccepted, `"endpoints":1`, code, body)

		second := planOf(2, "orders")
		second.Endpoints[0].NamespaceUID, second.Endpoints[0].UID = "u2", "uid-anew"
		s.publish(second)
		time.Sleep(planLive)
		code, body = r.get("--listen", "/v1/namespaces/shop/events/evt_1")
		r.want(http.StatusNotFound, "", code, body)
		r.delivered("evt_1") // another event, of the same id
		for _, words := range []string{"deleted and made anew", "Waiting deliveries were dead-lettered"} {
			if r.log.count(words) != 1 {
				t.Errorf("the log does not say %q once:\n%s", words, r.log)
			}
		}
		r.stop()

		// The volume has the plan of before.
		s.api.leave()
		r = s.start()
		time.Sleep(time.Minute)
		r.ready()
		if strings.Contains(r.log.String(), "made anew") {
			t.Errorf("the former namespace took the name back:\n%s", r.log)
		}
		s.api.comeBack()
		time.Sleep(time.Minute)
		code, body = r.get("--listen", "/v1/namespaces/shop/events/evt_1")
		r.want(http.StatusOK, `"state":"delivered"`, code, body)
		r.delivered("evt_2")
		if n := s.receiver.times("evt_1"); n != 1 {
			t.Errorf("the event of the former namespace was sent: %d", n)
		}
		r.stop()
	})
}
