package crash

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/test/harness"
)

const (
	producerConns = 32
	eventBytes    = 1024
	// burstEvents are released at once, then nothing for burstPause.
	burstEvents = 250
	burstPause  = 30 * time.Millisecond
	idPrefix    = "crash"
)

// producer posts events in bursts, as a producer of Doorstep must: what is answered
// by an error, 429 or 5xx is sent again with the same id until it is acknowledged.
type producer struct {
	t      *testing.T
	addr   string
	key    string
	ledger *ledger
	pad    *harness.Padding
	// bursts gets the beginning of each burst; nobody need listen.
	bursts chan time.Time

	next    atomic.Int64
	limit   atomic.Int64
	repeats atomic.Int64
	wg      sync.WaitGroup
	stop    context.CancelFunc
}

// startProducer posts up to limit events to addr until it is stopped.
func startProducer(t *testing.T, addr, key string, l *ledger, limit int) *producer {
	ctx, cancel := context.WithCancel(context.Background())
	p := &producer{t: t, addr: addr, key: key, ledger: l, pad: harness.NewPadding(), bursts: make(chan time.Time), stop: cancel}
	p.limit.Store(int64(limit))
	tokens := make(chan struct{}, burstEvents)
	p.wg.Go(func() { p.release(ctx, tokens) })
	for range producerConns {
		p.wg.Go(func() { p.post(ctx, tokens) })
	}
	t.Cleanup(p.end)
	return p
}

// end stops the producer and waits for it. Events under way stay in doubt.
func (p *producer) end() {
	p.stop()
	p.wg.Wait()
}

// release lets bursts go.
func (p *producer) release(ctx context.Context, tokens chan<- struct{}) {
	for {
		select {
		case p.bursts <- time.Now():
		default:
		}
		for range burstEvents {
			select {
			case tokens <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-time.After(burstPause):
		case <-ctx.Done():
			return
		}
	}
}

// post sends one event a token.
func (p *producer) post(ctx context.Context, tokens <-chan struct{}) {
	c := harness.NewConn(p.addr, harness.EventsPath, p.key)
	defer c.Close()
	for {
		select {
		case <-tokens:
		case <-ctx.Done():
			return
		}
		n := p.next.Add(1) - 1
		if n >= p.limit.Load() {
			p.next.Add(-1)
			continue
		}
		body := p.pad.Event(nil, idPrefix, n, "order.created", time.Now(), eventBytes)
		if !p.insist(ctx, c, body) {
			return
		}
		p.ledger.ack(int(n))
	}
}

// insist sends body until it is acknowledged; false if the producer ended before.
func (p *producer) insist(ctx context.Context, c *harness.Conn, body []byte) bool {
	for {
		a, err := c.Post(body)
		switch {
		case err == nil && (a.Status == 202 || a.Status == 200):
			return true
		case err == nil && a.Status != 429 && a.Status/100 != 5:
			p.t.Errorf("an event was answered %d", a.Status)
			return false
		}
		p.repeats.Add(1)
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return false
		}
	}
}

// id is event n's id, and its webhook-id.
func id(n int) string { return fmt.Sprintf("%s-%d", idPrefix, n) }
