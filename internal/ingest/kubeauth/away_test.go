package kubeauth_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/doorstep-dev/doorstep/internal/ingest"
)

// While the API server is away the last good answer serves for an hour, and what was never
// answered is 503: a producer does not send again what is answered 401 or 403. case UP231.
func TestTheAPIServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoor(t)
		d.want(http.StatusOK, good)
		d.set(func(r *reviewer) {
			r.away = errors.New(`Post "https://10.0.0.1/apis/authentication.k8s.io/v1/tokenreviews": connection refused`)
		})
		begun := time.Now()
		for time.Since(begun) < time.Hour {
			d.want(http.StatusOK, good)
			d.want(http.StatusServiceUnavailable, "new")
			// The token is known, and what it asks for is not.
			if status, words := d.ask(good, ingest.Request{Verb: ingest.VerbReplay, Namespace: "shop"}); status != http.StatusServiceUnavailable {
				t.Fatalf("a new question is answered %d %s", status, words)
			}
			time.Sleep(30 * time.Second)
		}
		time.Sleep(time.Second)
		d.want(http.StatusServiceUnavailable, good)

		d.set(func(r *reviewer) { r.away = nil })
		d.want(http.StatusOK, good)
		d.want(http.StatusUnauthorized, "new")

		if lines := strings.Count(d.log.String(), "\n"); lines == 0 || lines > 61 {
			t.Errorf("the log has %d lines about an hour", lines)
		}
		if strings.Contains(d.log.String(), good) || strings.Contains(d.log.String(), "new") {
			t.Errorf("the log has a token:\n%s", d.log.String())
		}
	})
}

func TestATokenThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoor(t)
		token := jwt(time.Now().Add(90 * time.Second))
		d.set(func(r *reviewer) { r.tokens[token] = producer("doorstep") })
		d.want(http.StatusOK, token)
		time.Sleep(70 * time.Second)
		d.want(http.StatusOK, token) // asked about again: good for another minute, were it not for its end
		d.set(func(r *reviewer) { delete(r.tokens, token) })
		time.Sleep(30 * time.Second)
		if words := d.want(http.StatusUnauthorized, token); !strings.Contains(words, "expired") {
			t.Errorf("it is told %q", words)
		}
	})
}

// The kubelet can't renew a token either while the API server is away: its pod is told to
// come again, as it would not after a 401.
func TestATokenThatEndsWhileTheAPIServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoor(t)
		token := jwt(time.Now().Add(10 * time.Minute))
		d.set(func(r *reviewer) { r.tokens[token] = producer("doorstep") })
		d.want(http.StatusOK, token)
		d.set(func(r *reviewer) { r.away = errors.New("connection refused") })
		time.Sleep(9 * time.Minute)
		d.want(http.StatusOK, token)
		time.Sleep(time.Minute)
		d.want(http.StatusServiceUnavailable, token)
	})
}

// An API server that is slow keeps those waiting who are not known, and nobody else for
// long. case UP232.
func TestTheAPIServerIsSlow(t *testing.T) {
	for _, row := range []struct {
		name string
		slow time.Duration
		// stranger is how somebody is answered who is not known; calls are how many of ten
		// calls a second apart may wait.
		stranger, waits int
	}{
		{"by three seconds", 3 * time.Second, http.StatusUnauthorized, 3},
		{"for ever", 24 * time.Hour, http.StatusServiceUnavailable, 5},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDoor(t)
				d.want(http.StatusOK, good)
				d.set(func(r *reviewer) { r.slow = row.slow })
				for range 5 {
					time.Sleep(time.Minute)
					waits := 0
					for range 10 {
						begun := time.Now()
						d.want(http.StatusOK, good)
						took := time.Since(begun)
						if took > 2*time.Second { // one for who it is, one for what it may do
							t.Fatalf("a caller who is known waited %s", took)
						}
						if took > 0 {
							waits++
						}
						time.Sleep(time.Second)
					}
					if waits > row.waits {
						t.Errorf("%d of 10 calls had to wait", waits)
					}
					d.want(row.stranger, "stranger")
				}
			})
		})
	}
}
