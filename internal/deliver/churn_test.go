package deliver

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/doorstep-dev/doorstep/internal/plan"
)

// generation is one version of an endpoint: its key, path, header and credentials all
// carry its number.
func generation(to string, n int) *plan.Endpoint {
	return &plan.Endpoint{
		EndpointKey: plan.EndpointKey{Namespace: "default", Name: "orders"}, Timeout: 10 * time.Second, URL: fmt.Sprintf("%s/%d", to, n),
		Signing: plan.Signing{Scheme: plan.SchemeStandardWebhooks, Keys: []plan.SigningKey{{Name: "k", Key: generationKey(n)}}},
		Headers: []plan.Header{{Name: "X-Generation", Value: fmt.Sprint(n)}},
		Auth:    &plan.Auth{Authorization: fmt.Sprintf("Bearer %d", n)},
	}
}

func generationKey(n int) string {
	return "whsec_" + base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%032d", n))
}

// case DD86: headers, Secrets and the pool change all the time, under load; each request
// is of one version throughout, and none fails.
func TestEachRequestIsOfOneVersion(t *testing.T) {
	var requests atomic.Int64
	s, _ := newServer(t, false, false, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		n := strings.TrimPrefix(r.URL.Path, "/")
		if r.Header.Get("X-Generation") != n || r.Header.Get("Authorization") != "Bearer "+n {
			t.Errorf("path %s, header %s, credentials %s", n, r.Header.Get("X-Generation"), r.Header.Get("Authorization"))
		}
		var number int
		_, _ = fmt.Sscan(n, &number)
		wh, err := standardwebhooks.NewWebhook(generationKey(number))
		if err == nil {
			err = wh.VerifyIgnoringTimestamp(body, r.Header)
		}
		if err != nil {
			t.Errorf("path %s: %v", n, err)
		}
		requests.Add(1)
	})
	c := newClient(t, Options{})
	var destination atomic.Pointer[Destination]
	version := 0
	change := func() {
		version++
		d, problem := NewDestination(generation(s.URL, version))
		if problem != nil {
			t.Fatal(problem.Message)
		}
		e := loopback()
		for range version % 3 {
			e.Allow = append(e.Allow, e.Allow[0])
		}
		c.SetPool(e, func() { destination.Store(d) })
	}
	change()
	const changes = 40
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			r := newRequest(t, s.URL)
			for {
				select {
				case <-done:
					return
				default:
				}
				attempt := *r
				attempt.Destination = destination.Load()
				if res := c.Do(context.Background(), &attempt); res.Status != 200 {
					t.Errorf("%+v", res)
				}
			}
		})
	}
	// Twenty a second, and each at least for some requests.
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for range changes {
		before := requests.Load()
		<-tick.C
		for requests.Load() < before+8 {
			<-tick.C
		}
		change()
	}
	close(done)
	wg.Wait()
	if n := requests.Load(); n < 8*changes {
		t.Errorf("only %d requests", n)
	}
}
