package ingest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

const (
	// maxReplays bounds what one call replays; the lane's own limits say how fast that goes out.
	maxReplays = 1000
	// maxReplayScan bounds what one call looks at.
	maxReplayScan = 20_000
	// replaysAtOnce are handed to the store side by side, so that they share its writes.
	replaysAtOnce = 16

	cursorReplay = "r1"
)

// replaySelected sends those finished deliveries of an endpoint again that a selection picks, a bounded number in one
// call, or counts them (case UX207). They go to this endpoint alone (case DL157).
func (s *Server) replaySelected(w http.ResponseWriter, r *http.Request, c call) *Problem {
	if _, problem := query(r); problem != nil {
		return problem
	}
	var request SelectedReplayRequest
	if problem := s.readObject(r, maxSelectionBytes, &request); problem != nil {
		return problem
	}
	sel, problem := newReplayFilter(request.Select, request.Force)
	if problem != nil {
		return problem
	}
	after, limit, problem := replayPlace(request, c.name)
	if problem != nil {
		return problem
	}
	key := plan.EndpointKey{Namespace: c.namespace, Name: c.name}
	if problem := s.replayable(key); problem != nil {
		return problem
	}
	picked, next, err := s.pick(r.Context(), key, sel, after, limit)
	if err != nil {
		return s.problemOf(err, "choose what to replay")
	}
	result := SelectedReplayResult{Endpoint: c.name, DryRun: request.DryRun, Matched: len(picked)}
	if next != 0 {
		result.Cursor = encodeCursor(cursorReplay, c.name, strconv.FormatUint(uint64(next), 10))
	}
	if !request.DryRun && len(picked) > 0 {
		record := queue.AuditRecord{Action: AuditReplay, Target: c.name, Count: len(picked), Detail: replayWords(request.Select)}
		if problem := s.audit(r, c, record, request.Reason); problem != nil {
			return problem
		}
		if result.Replayed, err = s.replayPicked(r.Context(), key, picked, request.Force); err != nil {
			return s.problemOf(err, "replay")
		}
		result.Skipped = len(picked) - result.Replayed
	}
	writeJSON(w, http.StatusOK, mediaJSON, result)
	return nil
}

// replayPlace reads where a call goes on and how much it takes; a dry run has no limit.
func replayPlace(request SelectedReplayRequest, endpoint string) (after queue.Seq, limit int, problem *Problem) {
	limit = request.Limit
	switch {
	case limit < 0 || limit > maxReplays:
		return 0, 0, badRequest("limit", "The limit is a number from 1 to "+strconv.Itoa(maxReplays)+".")
	case request.DryRun:
		limit = maxReplayScan
	case limit == 0:
		limit = maxReplays
	}
	parts, problem := decodeCursorText(request.Cursor, cursorReplay, 2)
	if problem != nil || parts == nil {
		return 0, limit, problem
	}
	n, err := strconv.ParseUint(parts[1], 10, 64)
	if err != nil || parts[0] != endpoint {
		return 0, 0, errCursor
	}
	return queue.Seq(n), limit, nil
}

// replayable refuses what a replay would wait for in vain.
func (s *Server) replayable(key plan.EndpointKey) *Problem {
	fan := s.currentFanout()
	switch {
	case !s.knows(fan, key):
		return noEndpoint()
	case fan.endpoint(key) == nil:
		return errEndpointGone
	}
	return nil
}

// pick gives the deliveries that a selection picks, oldest event first, at most limit. next is where to go on: behind
// the last one that was looked at, 0 at the end.
func (s *Server) pick(ctx context.Context, key plan.EndpointKey, sel *replayFilter, after queue.Seq, limit int) ([]queue.Seq, queue.Seq, error) {
	span, err := s.seqSpan(ctx, key.Namespace, sel.since, sel.until)
	if err != nil {
		return nil, 0, err
	}
	var candidates source
	if candidates, err = s.candidates(ctx, key, sel, max(after, span.after)); err != nil {
		return nil, 0, err
	}
	var picked []queue.Seq
	var last queue.Seq
	for range maxReplayScan {
		if len(picked) == limit {
			return picked, last, nil
		}
		d, err := candidates.next(ctx)
		if err != nil {
			return nil, 0, err
		}
		if d == nil || d.Seq >= span.before {
			return picked, 0, nil
		}
		last = d.Seq
		match := sel.matches(d)
		if match && sel.needsEvent() {
			e, err := s.bareEvent(ctx, key.Namespace, d.Seq)
			if err != nil {
				return nil, 0, err
			}
			match = e != nil && sel.matchesEvent(e)
		}
		if match {
			picked = append(picked, d.Seq)
		}
	}
	return picked, last, nil
}

// replayPicked replays deliveries and returns how many; the others had changed meanwhile (case DL159). An error means
// that the store has taken only some: the caller asks again, and finds those waiting.
func (s *Server) replayPicked(ctx context.Context, key plan.EndpointKey, picked []queue.Seq, force bool) (int, error) {
	var replayed atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(replaysAtOnce)
	for _, seq := range picked {
		group.Go(func() error {
			_, err := s.queue.Replay(ctx, key, seq, force)
			switch {
			case err == nil:
				replayed.Add(1)
			case notReplayable(err):
			default:
				return err
			}
			return nil
		})
	}
	err := group.Wait()
	return int(replayed.Load()), err
}

// notReplayable reports an error that is about the one delivery.
func notReplayable(err error) bool {
	for _, known := range []error{queue.ErrAlreadyWaiting, queue.ErrDelivered, queue.ErrDiscarded, queue.ErrNotFound,
		queue.ErrErased, queue.ErrPayloadMissing} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

// replayWords tells a selection in an audit record.
func replayWords(sel Selection) string {
	var words []string
	add := func(name string, n int, values string) {
		if n > 0 {
			words = append(words, name+" "+values)
		}
	}
	add("states", len(sel.States), fmt.Sprint(sel.States))
	if !sel.Since.IsZero() {
		add("since", 1, formatTime(sel.Since))
	}
	if !sel.Until.IsZero() {
		add("until", 1, formatTime(sel.Until))
	}
	add("eventTypes", len(sel.EventTypes), fmt.Sprint(sel.EventTypes))
	add("reasons", len(sel.Reasons), fmt.Sprint(sel.Reasons))
	add("statusCodes", len(sel.StatusCodes), fmt.Sprint(sel.StatusCodes))
	add("handlerVersions", len(sel.HandlerVersions), fmt.Sprint(sel.HandlerVersions))
	add("eventIDs", len(sel.EventIDs), strconv.Itoa(len(sel.EventIDs))+" ids")
	return "selected by " + strings.Join(words, ", ")
}
