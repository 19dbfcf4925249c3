package worker

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
)

// planLive is how soon a change of the plan is in use and acknowledged.
const planLive = 2 * time.Second

// A worker starts from the plan in its volume, with neither manager nor API server, and
// goes on from there when they are back.
func TestStartsFromTheVolumeAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.publish(planOf(3, "orders"))
		s.project()
		s.api.leave()
		r := s.start()
		r.ready()
		code, body := r.send("evt_1") // nobody can say who sends it
		r.want(http.StatusServiceUnavailable, "Try again", code, body)

		s.api.comeBack()
		time.Sleep(time.Minute)
		r.delivered("evt_2")
		if v := s.api.acknowledged(); v != 3 {
			t.Errorf("version %d is acknowledged, want 3", v)
		}
		r.stop()
	})
}

func TestWaitsForItsFirstPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		r := s.start()
		time.Sleep(time.Minute)
		code, body := r.get("--probes", "/readyz")
		r.want(http.StatusServiceUnavailable, "no plan", code, body)
		code, body = r.get("--probes", "/healthz") // a restart would not help
		r.want(http.StatusOK, "ok", code, body)
		code, body = r.send("evt_1")
		r.want(http.StatusServiceUnavailable, "no plan", code, body)
		if v := s.api.acknowledged(); v != 0 {
			t.Errorf("version %d is acknowledged without a plan", v)
		}

		s.publish(planOf(1, "orders"))
		time.Sleep(planLive)
		r.ready()
		r.delivered("evt_1")
		r.stop()
	})
}

func TestFollowsThePlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.publish(planOf(1, "orders"))
		s.project()
		r := s.start()
		for version := uint64(2); version < 6; version++ {
			s.publish(planOf(version, "audit", "orders"))
			time.Sleep(planLive)
			if v := s.api.acknowledged(); v != version {
				t.Fatalf("version %d is acknowledged, want %d\n%s", v, version, r.log)
			}
			code, body := r.get("--metrics", "/metrics")
			r.want(http.StatusOK, "doorstep_plan_version "+string('0'+byte(version)), code, body)
			r.want(http.StatusOK, `doorstep_build_info{go_version="`, code, body)
			r.want(http.StatusOK, `version="test"} 1`, code, body)
		}
		code, body := r.send("evt_1")
		r.want(http.StatusAccepted, `"endpoints":2`, code, body)

		// An index that is deleted, by whomever, deletes nothing.
		if err := s.api.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: thePool.Namespace, Name: v1alpha1.PlanIndexName(thePool.Name)}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		r.ready()
		code, body = r.send("evt_2")
		r.want(http.StatusAccepted, `"endpoints":2`, code, body)
		r.stop()
	})
}

// Each acknowledgement and each renewal is one write, and nothing else is written while
// nothing happens.
func TestWritesNothingButItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.publish(planOf(1, "orders"))
		s.project()
		r := s.start()
		time.Sleep(time.Minute + time.Second)
		acks, renewals := s.api.written(v1alpha1.PlanAcksName(thePool.Name)), s.api.written(thePod)
		if acks != 2 || renewals != 8 { // with those that made the objects; at 0, 10 … 60 s
			t.Errorf("%d writes of acknowledgements, %d of the Lease", acks, renewals)
		}
		l := s.api.lease()
		if l.HolderIdentity == nil || *l.HolderIdentity != thePod || l.AcquireTime == nil || l.RenewTime == nil || time.Since(l.RenewTime.Time) > renewInterval ||
			l.LeaseDurationSeconds == nil || *l.LeaseDurationSeconds != 60 {
			t.Errorf("the Lease is %+v", l)
		}
		r.stop()
	})
}

// newerIndex is the index of a release that is not there yet.
func newerIndex(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(`{"format":99,"version":9,"everything":"different"}`)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A worker of the former release keeps its plan when the manager writes a newer format, and
// says so.
func TestAPlanOfALaterRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.publish(planOf(1, "orders"))
		s.project()
		r := s.start()
		s.replaceIndex(newerIndex(t))
		time.Sleep(time.Minute)
		r.ready()
		r.delivered("evt_1")
		if v := s.api.acknowledged(); v != 1 {
			t.Errorf("version %d is acknowledged, want that of the plan in use", v)
		}
		if r.log.count("later release") != 1 {
			t.Errorf("the log says:\n%s", r.log)
		}
		r.stop()

		// A container that starts again has it in its volume, and nothing else.
		s.project()
		r = s.start()
		time.Sleep(time.Minute)
		code, body := r.get("--probes", "/readyz")
		r.want(http.StatusServiceUnavailable, "no plan", code, body)
		if !strings.Contains(r.log.String(), "can't be used") {
			t.Errorf("the log says:\n%s", r.log)
		}
		r.stop()
	})
}

// Endpoints of a shard that is lost are held, not deleted: what was accepted for them waits
// until the shard is back.
func TestALostShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		p := planOf(1, "orders")
		p.Endpoints[0].Suspend = true
		s.publish(p)
		s.project()
		r := s.start()
		code, body := r.send("evt_1")
		r.want(http.StatusAccepted, `"endpoints":1`, code, body)
		time.Sleep(planLive)
		r.stop()

		p.Version = 2
		s.publish(p)
		s.loseShards()
		s.project()
		r = s.start()
		time.Sleep(time.Hour)
		r.ready()
		code, body = r.get("--listen", "/v1/namespaces/shop/events/evt_1")
		r.want(http.StatusOK, `"state":"held"`, code, body)
		if !strings.Contains(r.log.String(), "damaged or missing") {
			t.Errorf("the log says:\n%s", r.log)
		}
		// Nobody can tell who takes an event: it is not accepted for nobody.
		code, body = r.send("evt_2")
		r.want(http.StatusServiceUnavailable, "can't be read at the moment", code, body)
		if v := s.api.acknowledged(); v != 1 {
			t.Errorf("version %d is acknowledged, of which shards can't be read", v)
		}
		s.publish(planOf(3, "orders"))
		time.Sleep(planLive)
		if v := s.api.acknowledged(); v != 3 {
			t.Errorf("version %d is acknowledged, want 3", v)
		}
		if s.receiver.times("evt_1") == 0 {
			time.Sleep(time.Minute)
		}
		if n := s.receiver.times("evt_1"); n != 1 {
			t.Errorf("the event came %d times after all\n%s", n, r.log)
		}
		r.stop()
	})
}
