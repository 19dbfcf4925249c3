package ingest

import (
	"net/http"
	"sync"
	"time"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
	"github.com/doorstep-dev/doorstep/internal/retry"
)

const (
	// maxTests is how many tests may be under way at once, over all endpoints.
	maxTests = 16
	// maxTestTime is longer than any attempt may take.
	maxTestTime = 70 * time.Second
)

// tests are the endpoints whose test is under way: one each, so that nobody floods a receiver by tests.
type tests struct {
	mu    sync.Mutex
	under map[plan.EndpointKey]bool
}

func (t *tests) begin(key plan.EndpointKey) *Problem {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.under[key] {
		return conflict("test-under-way", "A test of this endpoint is under way; wait for its end.")
	}
	if len(t.under) >= maxTests {
		return unavailable("overloaded", "Too many tests are under way at once. Try again.", 5*time.Second)
	}
	if t.under == nil {
		t.under = make(map[plan.EndpointKey]bool)
	}
	t.under[key] = true
	return nil
}

func (t *tests) end(key plan.EndpointKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.under, key)
}

// test makes one attempt of an event of type doorstep.test and answers with how it went: 200 also when the receiver
// did not take it, since the test itself has worked.
func (s *Server) test(w http.ResponseWriter, r *http.Request, c call) *Problem {
	var request ActionRequest
	if problem := s.readAction(r, &request); problem != nil {
		return problem
	}
	key := plan.EndpointKey{Namespace: c.namespace, Name: c.name}
	if problem := s.testable(key); problem != nil {
		return problem
	}
	if problem := s.tests.begin(key); problem != nil {
		return problem
	}
	defer s.tests.end(key)
	if problem := s.audit(r, c, queue.AuditRecord{Action: AuditTest, Target: c.name, Count: 1}, request.Reason); problem != nil {
		return problem
	}
	// An attempt may take as long as the server waits for any answer to be written. Where the deadline can't be moved
	// (a recorder in a test), there is none.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(maxTestTime))
	result, err := s.lanes.Test(r.Context(), key)
	if err != nil {
		return s.problemOf(err, "test")
	}
	view := attemptView(result.Attempt)
	if !s.mayReadPayload(r, c.namespace, c.name) {
		view.Response = nil
	}
	writeJSON(w, http.StatusOK, mediaJSON, TestResult{
		Endpoint: c.name, WebhookID: result.WebhookID, Delivered: result.Attempt.Class == retry.Delivered,
		Status: view.Status, Reason: view.Reason, Message: view.Message, DurationMS: view.DurationMS, Sent: view.Sent,
		HandlerVersion: view.HandlerVersion, Response: view.Response,
	})
	return nil
}

// testable refuses a test of what nothing can be sent to. A suspended or disabled endpoint can be tested: that is how
// a person sees whether it may go on.
func (s *Server) testable(key plan.EndpointKey) *Problem {
	fan := s.currentFanout()
	e := fan.endpoint(key)
	switch {
	case e == nil:
		return noEndpoint()
	case e.Problem != nil:
		return EndpointNotReady(e.Problem.Reason, e.Problem.Message)
	case fan.plan.Pool.Egress.Problem != nil:
		return EndpointNotReady(fan.plan.Pool.Egress.Problem.Reason, fan.plan.Pool.Egress.Problem.Message)
	case s.laneOf(fan, key).State == LaneNotInPlan:
		return errEndpointGone
	}
	return nil
}
