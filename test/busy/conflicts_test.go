package busy

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	apply "github.com/doorstep-dev/doorstep/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/test/cluster"
)

const (
	editing = 30 * time.Second
	// editInterval makes 25 edits a second of each of two kinds.
	editInterval = 40 * time.Millisecond
	// Each round begins with a second in which the spec is edited; in the rest of it labels and annotations are, so that
	// the spec stands still and the manager has something to say while it is edited.
	round, specs = 3 * time.Second, time.Second
	// flips is how long the receiver stays as it is.
	flips = 3 * time.Second
)

var edited = types.NamespacedName{Namespace: namespace, Name: "edited"}

// A user edits an endpoint 50 times a second, half of it by updates that meet the writes of manager and worker, half by
// server-side applies, while its receiver fails and heals in turn. No edit is lost, neither manager nor worker calls a
// conflict an error, and afterwards every condition is right.
func TestConflicts(t *testing.T) {
	s := newSite(t)
	e := &v1alpha1.WebhookEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: edited.Namespace, Name: edited.Name}}
	e.Spec.URL = s.receiver.URL + "/ok"
	if err := s.Client.Create(t.Context(), e, client.FieldOwner("updates")); err != nil {
		t.Fatal(err)
	}
	s.awaitConditions(t, v1alpha1.ConditionReady)
	since := s.mark(t)

	ctx, cancel := context.WithTimeout(t.Context(), editing)
	defer cancel()
	var work sync.WaitGroup
	var updates, applies edits
	work.Go(func() { s.flip(ctx) })
	work.Go(func() { s.load(t, "edited", []string{"any"}, 40, editing+2*time.Second) })
	work.Go(func() { updates.make(ctx, t, s.update) })
	work.Go(func() { applies.make(ctx, t, s.serverSideApply) })
	work.Wait()
	s.receiver.broken.Store(false)

	// Each edit of the spec counts once in the generation, which begins with 1.
	now := s.read(t)
	if want := 1 + updates.specs + applies.specs; now.Generation != want {
		t.Errorf("generation %d after %d updates and %d applies of the spec, want %d", now.Generation, updates.specs, applies.specs, want)
	}
	if h := now.Spec.Headers; len(h) != 1 || h[0].Value != text(updates.specs) || now.Labels[editLabel] != text(updates.made) {
		t.Errorf("headers %+v and labels %v, want those of updates %d and %d", h, now.Labels, updates.specs, updates.made)
	}
	if m := now.Spec.MaxInFlight; m == nil || *m != inFlightOf(applies.specs) || now.Annotations[editLabel] != text(applies.made) {
		t.Errorf("maxInFlight %v and annotations %v, want those of applies %d and %d", m, now.Annotations, applies.specs, applies.made)
	}
	byManager, byWorker := len(s.statusWrites(t, managerUser, since)), len(s.statusWrites(t, workerUser, since))
	t.Logf("%d updates (%d met a conflict) and %d applies in %v; the manager made %d status writes and the worker %d",
		updates.made, updates.conflicts, applies.made, editing, byManager, byWorker)
	if updates.made+applies.made < 300 || byManager < 5 || byWorker < 5 {
		t.Error("that is too little to meet each other")
	}

	// Once the receiver has healed for good, so has the endpoint.
	s.load(t, "healed", []string{"any"}, 250, 8*time.Second)
	s.awaitConditions(t, v1alpha1.ConditionReady, v1alpha1.ConditionDelivering)
	s.healthyIsRight(t)
	s.eachOwnsItsOwn(t)
	s.noErrors(t)
}

// flip has the receiver fail and heal in turn.
func (s *site) flip(ctx context.Context) {
	ticker := time.NewTicker(flips)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			s.receiver.broken.Store(!s.receiver.broken.Load())
		}
	}
}

// edits are what one client did: all that it made, those of them that changed the spec, and the conflicts that it met.
type edits struct{ made, specs, conflicts int64 }

// make makes edit 1, 2, 3 …, one after the other.
func (e *edits) make(ctx context.Context, t *testing.T, edit func(t *testing.T, made, specs int64) (conflicts int64, err error)) {
	began := time.Now()
	ticker := time.NewTicker(editInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		e.made++
		if time.Since(began)%round < specs {
			e.specs++
		}
		conflicts, err := edit(t, e.made, e.specs)
		if err != nil {
			t.Errorf("edit %d: %v", e.made, err)
			return
		}
		e.conflicts += conflicts
	}
}

// patience is that of a client that wants its edit made.
var patience = wait.Backoff{Steps: 100, Duration: 2 * time.Millisecond, Factor: 1.1, Jitter: 1, Cap: 100 * time.Millisecond}

// update reads the endpoint, changes a label and a header and writes it all back, and again where somebody else was faster.
func (s *site) update(t *testing.T, made, specs int64) (int64, error) {
	conflicts := int64(-1)
	err := retry.RetryOnConflict(patience, func() error {
		conflicts++
		e := s.read(t)
		e.Labels = map[string]string{editLabel: text(made)}
		e.Spec.Headers = []v1alpha1.Header{{Name: "X-Edit", Value: text(specs)}}
		return s.Client.Update(t.Context(), e, client.FieldOwner("updates"))
	})
	return conflicts, err
}

// serverSideApply sets an annotation and maxInFlight.
func (s *site) serverSideApply(t *testing.T, made, specs int64) (int64, error) {
	a := apply.WebhookEndpoint(edited.Name, edited.Namespace).WithAnnotations(map[string]string{editLabel: text(made)}).
		WithSpec(apply.WebhookEndpointSpec().WithMaxInFlight(inFlightOf(specs)))
	return 0, s.Client.Apply(t.Context(), a, client.FieldOwner("applies"))
}

// inFlightOf is another one for each edit than for the one before.
func inFlightOf(n int64) int32 { return int32(100 + n%900) } //nolint:gosec // at most 1000

func text(n int64) string { return strconv.FormatInt(n, 10) }

// editLabel is the label that updates change, and the annotation that applies do.
const editLabel = "example.com/edit"

func (s *site) read(t *testing.T) *v1alpha1.WebhookEndpoint {
	e := &v1alpha1.WebhookEndpoint{}
	if err := s.Client.Get(t.Context(), edited, e); err != nil {
		t.Error(err)
	}
	return e
}

// isTrue reports whether a condition is True for an object as it is now.
func isTrue(e *v1alpha1.WebhookEndpoint, condition string) bool {
	c := meta.FindStatusCondition(e.Status.Conditions, condition)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == e.Generation
}

// awaitConditions waits until they are True for the endpoint as it is now.
func (s *site) awaitConditions(t *testing.T, conditions ...string) {
	t.Helper()
	cluster.Eventually(t, time.Minute, fmt.Sprintf("%v of the endpoint to be True", conditions), func() error {
		e := s.read(t)
		for _, c := range conditions {
			if !isTrue(e, c) {
				return fmt.Errorf("%s of generation %d: %+v", c, e.Generation, meta.FindStatusCondition(e.Status.Conditions, c))
			}
		}
		if e.Status.ObservedGeneration != e.Generation {
			return fmt.Errorf("observedGeneration is %d, not %d", e.Status.ObservedGeneration, e.Generation)
		}
		return nil
	})
}

// An endpoint is Degraded below 95 percent of success, and recovers at 98.
const degradedBelow, recoveredAt = 95, 98

// healthyIsRight: Healthy says what the success of the last five minutes, which are all there is, makes of it.
func (s *site) healthyIsRight(t *testing.T) {
	t.Helper()
	cluster.Eventually(t, time.Minute, "Healthy to be right", func() error {
		e := s.read(t)
		c := meta.FindStatusCondition(e.Status.Conditions, v1alpha1.ConditionHealthy)
		if c == nil || e.Status.Health == nil || e.Status.Health.SuccessPercent == nil || e.Status.Health.SuccessPercent.FiveMinutes == nil {
			return errors.New("it tells no health")
		}
		percent := *e.Status.Health.SuccessPercent.FiveMinutes
		good := c.Status == metav1.ConditionTrue
		if good && percent < degradedBelow || !good && percent >= recoveredAt || c.ObservedGeneration != e.Generation {
			return fmt.Errorf("it is %s, %s of generation %d (not %d) at %d percent", c.Status, c.Reason, c.ObservedGeneration, e.Generation, percent)
		}
		return nil
	})
}

// eachOwnsItsOwn: manager and worker each have one entry in managedFields, of the status, and no field in common with
// anybody.
func (s *site) eachOwnsItsOwn(t *testing.T) {
	t.Helper()
	owned := map[string]*fieldpath.Set{}
	for _, m := range s.read(t).ManagedFields {
		set := &fieldpath.Set{}
		if err := set.FromJSON(m.FieldsV1.GetRawReader()); err != nil {
			t.Fatal(err)
		}
		if owned[m.Manager] != nil {
			t.Errorf("%s has more than one entry in managedFields", m.Manager)
		}
		owned[m.Manager] = set
		if own := m.Manager == v1alpha1.FieldOwnerManager || m.Manager == v1alpha1.FieldOwnerWorker; own != (m.Subresource == "status") {
			t.Errorf("%s has an entry of subresource %q", m.Manager, m.Subresource)
		}
	}
	for _, who := range []string{v1alpha1.FieldOwnerManager, v1alpha1.FieldOwnerWorker, "updates", "applies"} {
		if owned[who] == nil {
			t.Errorf("%s has no entry in managedFields", who)
			continue
		}
		for other, set := range owned {
			if both := owned[who].Intersection(set).Leaves(); other != who && !both.Empty() {
				t.Errorf("%s and %s both own %s", who, other, both)
			}
		}
	}
}
