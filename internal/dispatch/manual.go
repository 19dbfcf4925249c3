package dispatch

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/doorstep-dev/doorstep/internal/deliver"
	"github.com/doorstep-dev/doorstep/internal/event"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
	"github.com/doorstep-dev/doorstep/internal/retry"
)

// What a person asks of a lane.

// Enable brings a disabled endpoint back, and lets one that backs off make its next
// attempt at once. Any other is left as it is.
func (d *Dispatcher) Enable(ctx context.Context, k plan.EndpointKey) error {
	d.mu.Lock()
	l := d.lanes[k]
	if l != nil {
		d.knock(l)
	}
	d.mu.Unlock()
	if l == nil {
		return ErrNoLane
	}
	return d.enable(ctx, l, "somebody enabled it")
}

func (d *Dispatcher) enable(ctx context.Context, l *lane, why string) error {
	l.saving.Lock()
	defer l.saving.Unlock()
	d.mu.Lock()
	disabled, stored := l.flow.state == Disabled && !l.aside, queue.Lane{RetryHash: l.stored.RetryHash}
	d.mu.Unlock()
	if !disabled {
		return nil
	}
	// Stored first: who is told that it is enabled finds it so after a crash too. What
	// waits is brought forward after one success, as BackingOff does.
	stored.BackingOff, stored.Reason = true, ReasonFailing
	if err := d.queue.SetLane(ctx, l.key, stored); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock.Now()
	l.stored, l.unsaved = stored, false
	l.flow.enable(l.target == nil || l.target.Retry.OnRecovery == retry.Expedite, now)
	if l.flow.expedite {
		l.expediteOld(now)
	}
	d.wake(l)
	d.log.Info("Lane changed", "endpoint", l.key.String(), "from", Disabled.String(), "to", Draining.String(), "cause", why)
	return nil
}

// knock lets a lane that backs off make its next attempt at once.
func (d *Dispatcher) knock(l *lane) {
	if l.flow.state == BackingOff {
		l.flow.until = d.clock.Now()
		d.wake(l)
	}
}

// Retry makes what waits for its next attempt due now, and returns how many deliveries
// that brought forward. It enables nothing.
func (d *Dispatcher) Retry(ctx context.Context, k plan.EndpointKey) (int, error) {
	d.mu.Lock()
	l := d.lanes[k]
	if l != nil {
		d.knock(l)
	}
	d.mu.Unlock()
	if l == nil {
		return 0, ErrNoLane
	}
	now := d.clock.Now()
	return d.reschedule(ctx, l, func(*queue.Delivery) time.Time { return now })
}

// NotReadyError says why an endpoint can't be sent to at all.
type NotReadyError struct{ plan.Problem }

// Error is the problem's message.
func (e *NotReadyError) Error() string { return e.Message }

// TestEventType is the type of the events that Test sends.
const TestEventType = "doorstep.test"

// Test makes one attempt of an event made for it, whatever state the lane is in, and
// leaves no trace but in the endpoint's rate limit. ErrNoLane and *NotReadyError say why
// it could not be made.
func (d *Dispatcher) Test(ctx context.Context, k plan.EndpointKey) (webhookID string, a queue.Attempt, err error) {
	d.mu.Lock()
	l := d.lanes[k]
	var t *target
	if l != nil {
		t = l.target
	}
	d.mu.Unlock()
	switch {
	case l == nil:
		return "", a, ErrNoLane
	case t == nil:
		return "", a, &NotReadyError{plan.Problem{Reason: "NotInPlan", Message: "the endpoint isn't to be seen at the moment; apply it again"}}
	case t.problem != nil:
		return "", a, &NotReadyError{*t.problem}
	}
	now := d.clock.Now()
	d.mu.Lock()
	l.pace.spend(now)
	d.mu.Unlock()
	ev := testEvent(k, d.clock.Wall())
	res := d.deliver.Do(ctx, &deliver.Request{
		Destination: t.to, Event: ev, DeliveryID: DeliveryID(k.Namespace, ev.WebhookID, k.Name), AttemptNumber: 1, Steady: now,
	})
	class := res.Class(&t.Retry)
	a = queue.Attempt{
		StartedAt: res.StartedAt, Duration: res.Duration, Status: res.Status, Class: class, Reason: res.Reason,
		Message: res.Message, Sent: res.Sent, HandlerVersion: res.HandlerVersion,
	}
	if class != retry.Delivered {
		a.Response = res.Response
	}
	return ev.WebhookID, a, nil
}

// testEvent is a plain JSON event that nobody posted.
func testEvent(k plan.EndpointKey, at time.Time) *event.Event {
	id := "test_" + rand.Text()
	body := fmt.Sprintf(`{"id":%q,"type":%q,"created_at":%q,"data":{"endpoint":%q}}`, id, TestEventType, at.Format(time.RFC3339), k.Name)
	return &event.Event{
		Namespace: k.Namespace, ID: id, WebhookID: id, Type: TestEventType, Time: at, Mode: event.ModePlain,
		ContentType: "application/json", Body: []byte(body),
	}
}
