package ingest

import (
	"errors"
	"runtime"
	"time"

	"github.com/doorstep-dev/doorstep/internal/event"
	"github.com/doorstep-dev/doorstep/internal/filter"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

const (
	// filterTime is what the filters of one request may take in all. Those that are not asked by then are asked before the
	// delivery's first attempt, where they hold up nobody but their endpoint.
	filterTime = 250 * time.Millisecond
	// largeBody is from where on an event's data, decoded, weigh so much that only a few may be at once.
	largeBody = 32 << 10
)

// filterSlots bounds how many large events filters look at at once: decoded JSON weighs up to forty times its bytes.
type filterSlots chan struct{}

func newFilterSlots() filterSlots { return make(filterSlots, 2*runtime.GOMAXPROCS(0)) }

// take waits for a slot.
func (s filterSlots) take(atMost time.Duration) bool {
	select {
	case s <- struct{}{}:
		return true
	default:
	}
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case s <- struct{}{}:
		return true
	case <-timer.C:
		return false
	}
}

func (s filterSlots) give() { <-s }

// asker asks the filters of one request.
type asker struct {
	slots filterSlots
	// left is what remains of filterTime.
	left time.Duration
}

func (s *Server) newAsker() asker { return asker{slots: s.filterSlots, left: filterTime} }

// ask asks each candidate's filter in turn, and adds those to r that take the event or can't tell. The event is decoded
// once for all.
func (a *asker) ask(e *event.Event, candidates []*candidate, r *routes) {
	started := time.Now()
	limit := a.left
	defer func() { a.left = limit - time.Since(started) }()
	if len(e.Body) > largeBody && limit > 0 {
		if a.slots.take(limit) {
			defer a.slots.give()
		} else {
			limit = 0
		}
	}
	in := filter.NewInput(e)
	for _, c := range candidates {
		pass := true
		if time.Since(started) >= limit {
			r.undecided = append(r.undecided, c.EndpointKey)
		} else if f, err := c.filter(); err != nil {
			// It holds its endpoint (FilterInvalid), and the mended one decides.
			r.undecided = append(r.undecided, c.EndpointKey)
		} else if pass, err = f.MatchInput(in); err != nil {
			pass = true
			r.filterErrors = append(r.filterErrors, c.EndpointKey)
		}
		if pass {
			r.endpoints = append(r.endpoints, c.EndpointKey)
		}
	}
}

// inquiry asks filters once more about an event that is in the store, to explain it. It is bounded as an asker is: there
// may be thousands of filters, and each may cost a tenth of a second.
type inquiry struct {
	// kept: the payload is there to be asked about.
	kept  bool
	input *filter.Input
	until time.Time
}

var errNotAsked = errors.New("the filters of one request take too long together")

// newInquiry begins an inquiry. Call end after it.
func (s *Server) newInquiry(e *queue.StoredEvent) (i *inquiry, end func()) {
	started := time.Now()
	i, end = &inquiry{kept: payloadKept(e), input: filter.NewInput(e.Event), until: started.Add(filterTime)}, func() {}
	if i.kept && len(e.Body) > largeBody {
		if !s.filterSlots.take(filterTime) {
			i.until = started
			return i, end
		}
		end = s.filterSlots.give
	}
	return i, end
}

// match asks a filter; errNotAsked when the time is up.
func (i *inquiry) match(f *filter.Filter) (bool, error) {
	if !time.Now().Before(i.until) {
		return false, errNotAsked
	}
	return f.MatchInput(i.input)
}
