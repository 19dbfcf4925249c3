package harness

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Load is a stream of plain JSON events to post.
type Load struct {
	Addr, Path, Key string
	// Run begins every id, so that ids of different runs differ: ids are Run-0, Run-1 …
	Run string
	// Types are taken in turn.
	Types []string
	// Customers gives event n the attribute customer, cust_0 … cust_Customers-1 in turn; 0
	// gives none.
	Customers int64
	// Size is the length of a whole event in bytes.
	Size int
	// Conns is how many connections post at once.
	Conns int
	// Count is the most events, Duration the longest time; whichever comes first.
	Count    int
	Duration time.Duration
	// Rate is events per second at fixed times (open loop); 0 is as fast as answers
	// come (closed loop).
	Rate float64
}

// LoadResult is what came of a Load.
type LoadResult struct {
	// Accepted counts answers 202, Duplicate 200, Refused 429 and 503 (each is sent
	// again after the answer's Retry-After, at most a second), Failed all else.
	Accepted, Duplicate, Refused, Failed int64
	// FirstError is one of the failures in words.
	FirstError string `json:",omitempty"`
	Elapsed    time.Duration
	// CPU is what this process used meanwhile.
	CPU time.Duration
	// AckP50 and AckP99 are times from send to answer.
	AckP50, AckP99 time.Duration
}

// PerSecond is accepted events per second.
func (r LoadResult) PerSecond() float64 { return float64(r.Accepted) / r.Elapsed.Seconds() }

// Do posts the events and returns when all are answered or ctx ends.
func (l Load) Do(ctx context.Context) (LoadResult, error) {
	if l.Conns < 1 || l.Count < 1 || l.Duration <= 0 || len(l.Types) == 0 {
		return LoadResult{}, fmt.Errorf("a load needs at least one connection, event and type, and a duration")
	}
	before, err := CPU(os.Getpid())
	if err != nil {
		return LoadResult{}, err
	}
	g := &generator{Load: l, start: time.Now(), pad: NewPadding()}
	ctx, cancel := context.WithDeadline(ctx, g.start.Add(l.Duration))
	defer cancel()
	var wg sync.WaitGroup
	for range l.Conns {
		wg.Go(func() { g.post(ctx) })
	}
	wg.Wait()
	elapsed := time.Since(g.start)
	after, err := CPU(os.Getpid())
	if err != nil {
		return LoadResult{}, err
	}
	return LoadResult{
		Accepted: g.accepted.Load(), Duplicate: g.duplicate.Load(), Refused: g.refused.Load(), Failed: g.failed.Load(),
		FirstError: g.firstError, Elapsed: elapsed, CPU: after - before,
		AckP50: g.ack.Quantile(0.5), AckP99: g.ack.Quantile(0.99),
	}, nil
}

type generator struct {
	Load
	start time.Time
	pad   *Padding
	next  atomic.Int64
	ack   Histogram

	accepted, duplicate, refused, failed atomic.Int64

	once       sync.Once
	firstError string
}

// post takes events by number until there are none, on one connection.
func (g *generator) post(ctx context.Context) {
	c := NewConn(g.Addr, g.Path, g.Key)
	defer c.Close()
	var body []byte
	for ctx.Err() == nil {
		n := g.next.Add(1) - 1
		if n >= int64(g.Count) {
			return
		}
		sent, ok := g.turn(ctx, n)
		if !ok {
			return
		}
		customer := ""
		if g.Customers > 0 {
			customer = Customer(n % g.Customers)
		}
		body = g.pad.EventFor(body[:0], g.Run, n, g.Types[n%int64(len(g.Types))], customer, sent, g.Size)
		g.send(ctx, c, body)
	}
}

// turn waits for event n's time and returns the time to stamp it with. In an open
// loop that is the moment it goes out, but for an event that is late because every
// connection was busy it is the time at which it was due: waiting for a slow server
// counts as that server's latency, the generator's own timer does not.
func (g *generator) turn(ctx context.Context, n int64) (time.Time, bool) {
	if g.Rate == 0 {
		return time.Now(), true
	}
	due := g.start.Add(time.Duration(float64(n) / g.Rate * float64(time.Second)))
	wait := time.Until(due)
	if wait <= 0 {
		return due, ctx.Err() == nil
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return time.Now(), true
	case <-ctx.Done():
		return due, false
	}
}

// send posts one event until it is answered for good. It does not stop in the middle
// of an event, so that accepted counts all that were accepted.
func (g *generator) send(ctx context.Context, c *Conn, body []byte) {
	for {
		at := time.Now()
		a, err := c.Post(body)
		switch {
		case err != nil:
			g.fail(err.Error())
		case a.Status == 202:
			g.ack.Add(time.Since(at))
			g.accepted.Add(1)
		case a.Status == 200:
			g.duplicate.Add(1)
		case a.Status == 429 || a.Status == 503:
			g.refused.Add(1)
			t := time.NewTimer(min(max(a.RetryAfter, 10*time.Millisecond), time.Second))
			select {
			case <-t.C:
				continue
			case <-ctx.Done():
				t.Stop()
			}
		default:
			g.fail("answer " + strconv.Itoa(a.Status))
		}
		return
	}
}

func (g *generator) fail(why string) {
	g.failed.Add(1)
	g.once.Do(func() { g.firstError = why })
}

// Padding makes events. Their filling is random text, so that no store gains by
// compressing it.
type Padding struct{ text []byte }

const padding = 1 << 16

// NewPadding makes the text; it is the same each time.
func NewPadding() *Padding {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	rng := rand.New(rand.NewPCG(2026, 11))
	p := &Padding{text: make([]byte, 2*padding)}
	for i := range p.text {
		p.text[i] = letters[rng.IntN(len(letters))]
	}
	return p
}

// Customer is the value of the attribute customer of number n.
func Customer(n int64) string { return "cust_" + strconv.FormatInt(n, 10) }

// Event appends event n of a run to b: plain JSON of size bytes (or a little more if
// size is very small, 64 KiB at most) with the time it is sent inside data.
func (p *Padding) Event(b []byte, run string, n int64, typ string, sent time.Time, size int) []byte {
	return p.EventFor(b, run, n, typ, "", sent, size)
}

// EventFor is Event with the attribute customer, unless that is empty.
func (p *Padding) EventFor(b []byte, run string, n int64, typ, customer string, sent time.Time, size int) []byte {
	from := len(b)
	b = append(b, `{"id":"`...)
	b = append(b, run...)
	b = append(b, '-')
	b = strconv.AppendInt(b, n, 10)
	b = append(b, `","type":"`...)
	b = append(b, typ...)
	if customer != "" {
		b = append(b, `","attributes":{"customer":"`...)
		b = append(b, customer...)
		b = append(b, `"},"data":{"sent":`...)
	} else {
		b = append(b, `","data":{"sent":`...)
	}
	b = strconv.AppendInt(b, sent.UnixNano(), 10)
	b = append(b, `,"pad":"`...)
	fill := min(max(size-(len(b)-from)-len(`"}}`), 0), padding)
	at := int(uint64(n) * 7919 % padding)
	b = append(b, p.text[at:at+fill]...)
	return append(b, `"}}`...)
}
