package deliver

import (
	"context"
	"crypto/x509"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorstep-dev/doorstep/internal/deliver/egress"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

const (
	// defaultTimeout is the timeout of an endpoint that has none.
	defaultTimeout = 15 * time.Second
	// connectTimeout bounds connecting and, apart, the TLS handshake. net/http goes
	// on with both after their attempt has ended, for a later one to use.
	connectTimeout = 10 * time.Second
	// idleTimeout is how long an unused connection is kept. Common receivers close
	// theirs after 5 s (Node.js, Apache); a request that crosses such a close on its
	// way can't be told from one that was received, and would count as a failure. So
	// we close first. A busy endpoint never gets here, a quiet one pays a handshake.
	idleTimeout = 4 * time.Second
)

// Options configure a Client. The zero value is usable.
type Options struct {
	// Egress says where requests may go, and by which way. SetPool exchanges it.
	Egress plan.Egress
	// Version is sent as user-agent: Doorstep/<version>; "dev" if empty.
	Version string
	// Wall is the wall clock, for webhook-timestamp and StartedAt; nil: time.Now.
	Wall func() time.Time
	// RootCAs are the authorities trusted for https; nil: the system's.
	RootCAs *x509.CertPool
	// Resolver resolves names; nil: the system's.
	Resolver egress.Resolver
	// IdleTimeout is how long an unused connection is kept; 0: 4 s.
	IdleTimeout time.Duration
}

// Client makes attempts. It is safe for concurrent use.
type Client struct {
	userAgent string
	wall      func() time.Time
	options   Options
	buffers   sync.Pool // of *[keptBytes]byte
	tokens    tokens
	// lifetime ends with the Client: requests for tokens outlast the attempts that wait
	// for them.
	lifetime context.Context
	end      context.CancelFunc

	mu      sync.Mutex // held while the network is exchanged
	network atomic.Pointer[network]
	// changing: SetPool is under way.
	changing atomic.Bool
}

// New makes a Client. Close it.
func New(o Options) *Client {
	if o.Wall == nil {
		o.Wall = time.Now
	}
	if o.Version == "" {
		o.Version = "dev"
	}
	if o.IdleTimeout <= 0 {
		o.IdleTimeout = idleTimeout
	}
	c := &Client{userAgent: "Doorstep/" + o.Version, wall: o.Wall, options: o}
	c.lifetime, c.end = context.WithCancel(context.Background())
	c.buffers.New = func() any { return new([keptBytes]byte) }
	c.network.Store(newNetwork(&c.options, o.Egress))
	return c
}

// SetPool exchanges what the pool says of the way to receivers, and calls apply, which
// hands dispatch the destinations that belong to it. Each attempt uses the one or the
// other throughout. A connection was judged when it was dialled, so after a change no
// attempt uses one made before it. Until apply has returned, a destination that isn't
// allowed is a fault of ours: it may be the former plan's, judged by the networks of the
// new one.
func (c *Client) SetPool(e plan.Egress, apply func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	former := c.network.Load()
	c.tokens.sweep()
	if former.same(e) {
		former.sweep()
		apply()
		return
	}
	c.changing.Store(true)
	defer c.changing.Store(false)
	c.network.Store(newNetwork(&c.options, e))
	former.close()
	apply()
}

// Close closes the connections that are not in use. Attempts must have ended.
func (c *Client) Close() {
	c.end()
	c.tokens.wait()
	c.network.Load().close()
}
