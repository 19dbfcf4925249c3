package deliver

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/doorstep-dev/doorstep/internal/event"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// wall is the wall clock of the tests.
var wall = time.Unix(1_792_000_000, 123_456_789)

// loopback lets tests reach their own servers.
func loopback() plan.Egress {
	return plan.Egress{AllowHTTP: true, Allow: []plan.Network{{Prefix: netip.MustParsePrefix("127.0.0.0/8")}}}
}

// newClient makes a client that may dial loopback, closed at the end of the test.
func newClient(t testing.TB, o Options) *Client {
	t.Helper()
	if !o.Egress.AllowHTTP {
		o.Egress = loopback()
	}
	if o.Wall == nil {
		o.Wall = func() time.Time { return wall }
	}
	o.Version = "1.2.3"
	c := New(o)
	t.Cleanup(c.Close)
	return c
}

// setPool exchanges the pool's part, for the endpoints that there are.
func setPool(c *Client, e plan.Egress) { c.SetPool(e, func() {}) }

// newRequest makes an attempt of an event with an endpoint, which changes may alter
// before it is read.
func newRequest(t testing.TB, to string, changes ...func(*plan.Endpoint)) *Request {
	t.Helper()
	e := plan.Endpoint{
		EndpointKey: plan.EndpointKey{Namespace: "default", Name: "orders"}, URL: to, Timeout: 5 * time.Second,
		Signing: plan.Signing{Scheme: plan.SchemeStandardWebhooks, Keys: []plan.SigningKey{{Name: "k", Key: testSecret}}},
	}
	for _, change := range changes {
		change(&e)
	}
	d, problem := NewDestination(&e)
	if problem != nil {
		t.Fatalf("%s: %s", problem.Reason, problem.Message)
	}
	return &Request{
		Destination: d, DeliveryID: "dlv_1", AttemptNumber: 1, Steady: wall,
		Event: &event.Event{
			Namespace: "default", ID: "evt_1", WebhookID: "evt_1", Type: "order.created", Mode: event.ModePlain,
			ContentType: "application/json", Body: []byte(`{"test": 2432232314}`),
		},
	}
}

// within sets an endpoint's timeout.
func within(d time.Duration) func(*plan.Endpoint) {
	return func(e *plan.Endpoint) { e.Timeout = d }
}

// traffic counts the connections that a server ever had, and tells of closed ones.
type traffic struct {
	atomic.Int64
	closed chan struct{}
}

// await waits until n more connections are closed.
func (tr *traffic) await(t testing.TB, n int) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for i := range n {
		select {
		case <-tr.closed:
		case <-deadline:
			t.Fatalf("only %d of %d connections are closed", i, n)
		}
	}
}

// newServer is a receiver that counts its connections.
func newServer(t testing.TB, secure, http2 bool, h http.HandlerFunc) (*httptest.Server, *traffic) {
	t.Helper()
	connections := &traffic{closed: make(chan struct{}, 10_000)}
	s := httptest.NewUnstartedServer(h)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			connections.Add(1)
		case http.StateClosed:
			connections.closed <- struct{}{}
		}
	}
	s.Config.ErrorLog = discardLog
	s.EnableHTTP2 = http2
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s, connections
}

// newPeer accepts connections and hands each to handle, in a goroutine of its own.
func newPeer(t testing.TB, handle func(net.Conn)) (address string, connections *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	connections = new(atomic.Int64)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			go func() {
				defer conn.Close()
				handle(conn)
			}()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String(), connections
}

// readRequest reads one request from a connection, body and all.
func readRequest(conn net.Conn) error {
	req, err := http.ReadRequest(newReader(conn))
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, req.Body)
	return err
}

func mustHost(t testing.TB, raw string) string {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}
