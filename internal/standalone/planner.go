package standalone

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/compile"
	"github.com/doorstep-dev/doorstep/internal/dispatch"
	"github.com/doorstep-dev/doorstep/internal/manifest"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

// dataLook is how soon the data folder is tried again; it isn't watched.
const dataLook = 2 * time.Second

// planner turns what the manifests say into plans.
type planner struct {
	p      *process
	loader *manifest.Loader // nil without manifests
	opts   compile.Options

	mu       sync.Mutex
	snapshot manifest.Snapshot
	plan     *plan.Plan
	// told are the problems and notes that were reported and still stand; troubled says
	// whether there are problems among them.
	told     map[string]bool
	troubled bool
	// unwritten: the plan in force is not in the data folder.
	unwritten bool
	again     *time.Timer
}

func newPlanner(p *process) (*planner, error) {
	previous, err := manifest.ReadPlan(p.Data)
	if err != nil {
		return nil, err
	}
	pl := &planner{p: p, plan: previous, told: map[string]bool{}, opts: compile.Options{Dev: p.Dev}}
	if p.ForwardTo != "" {
		if pl.opts.ForwardTo, err = url.Parse(p.ForwardTo); err != nil {
			return nil, fmt.Errorf("--forward-to: %w", err)
		}
	}
	if p.Dir != "" {
		pl.loader, err = manifest.NewLoader(p.Dir, p.Data)
	}
	return pl, err
}

// first makes the plan to start with.
func (pl *planner) first() *plan.Plan {
	pl.snapshot = forwardAll()
	if pl.loader != nil {
		pl.snapshot = pl.loader.Load()
	}
	opts := pl.opts
	opts.FirstLook = true
	return pl.compile(opts)
}

// run compiles anew whenever the manifests change, or time alone changes the plan.
func (pl *planner) run(ctx context.Context) error {
	pl.mu.Lock()
	// Timers set by the first compile begin to count now.
	pl.again = time.AfterFunc(0, func() { pl.refresh(ctx) })
	pl.mu.Unlock()
	defer func() {
		pl.mu.Lock()
		defer pl.mu.Unlock()
		pl.again.Stop()
		pl.again = nil
	}()
	if pl.loader == nil {
		<-ctx.Done()
		return nil
	}
	return pl.loader.Watch(ctx, func(s manifest.Snapshot) {
		pl.mu.Lock()
		pl.snapshot = s
		pl.mu.Unlock()
		pl.refresh(ctx)
	})
}

// refresh makes and uses a plan of the manifests as last seen.
func (pl *planner) refresh(ctx context.Context) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	former := pl.plan
	next := pl.compile(pl.opts)
	if next.Version != former.Version {
		pl.p.Log.Info("The plan changed", "version", next.Version, "endpoints", len(next.Endpoints))
		pl.p.engine.Use(ctx, next)
	}
	pl.p.planned(next)
}

// compile makes a plan and stores it before it is used: what a plan remembers
// (absences, deletions) must not be forgotten by a crash.
func (pl *planner) compile(opts compile.Options) *plan.Plan {
	in := pl.snapshot.Objects
	made, failed := pl.keys(&in)
	r := compile.Compile(in, pl.plan, pl.p.engine.Store().Clock().Now(), opts)
	if pl.unwritten = pl.unwritten || pl.plan == nil || r.Plan.Version != pl.plan.Version; pl.unwritten {
		if err := manifest.WritePlan(pl.p.Data, r.Plan); err != nil {
			pl.p.Log.Error(err, "The plan can't be written to the data folder; it is in force, and writing is tried again, but a restart would begin from the former one")
		} else {
			pl.unwritten = false
		}
	}
	pl.tellAbsences(pl.plan, r.Plan)
	pl.plan = r.Plan
	pl.tell(r.Problems, failed)
	pl.tellKeys(made)
	pl.comeBack(r.NextAt, failed != nil || pl.unwritten)
	return r.Plan
}

// comeBack compiles again when time alone changes the plan, and soon where the data
// folder failed: a key file may be there again, or room for the plan.
func (pl *planner) comeBack(at time.Time, failed bool) {
	if pl.again == nil {
		return
	}
	now := pl.p.engine.Store().Clock().Now()
	if lookAt := now.Add(dataLook); failed && (at.IsZero() || lookAt.Before(at)) {
		at = lookAt
	}
	if !at.IsZero() {
		pl.again.Reset(max(at.Sub(now), 0))
	}
}

// keys adds the generated signing keys.
func (pl *planner) keys(in *compile.Objects) ([]corev1.Secret, error) {
	add, made, err := manifest.EnsureSigningKeys(pl.p.Data, *in, pl.plan)
	in.Secrets = append(in.Secrets[:len(in.Secrets):len(in.Secrets)], add...)
	return made, err
}

// tell reports each problem when it appears and when it is mended.
func (pl *planner) tell(problems []compile.Problem, keys error) {
	now := map[string]bool{}
	say := func(text string, note bool) {
		now[text] = true
		switch {
		case pl.told[text]:
		case note:
			pl.p.Log.V(1).Info("Manifest: " + text)
		default:
			pl.p.Log.Error(nil, "Problem: "+text)
		}
	}
	for _, m := range pl.snapshot.Notes {
		say(m.String(), true)
	}
	notes := len(now)
	for _, m := range pl.snapshot.Problems {
		say(m.String(), false)
	}
	for _, c := range problems {
		say(pl.snapshot.Locate(c).String(), false)
	}
	if keys != nil {
		say(keys.Error(), false)
	}
	if pl.troubled && len(now) == notes {
		pl.p.Log.Info("All manifests are in order again")
	}
	pl.told, pl.troubled = now, len(now) > notes
}

// tellAbsences names the endpoints that a new plan misses, deletes or has again.
func (pl *planner) tellAbsences(former, next *plan.Plan) {
	if former == nil {
		return
	}
	state := func(p *plan.Plan) map[plan.EndpointKey]string {
		m := map[plan.EndpointKey]string{}
		for i := range p.Endpoints {
			m[p.Endpoints[i].EndpointKey] = "there"
		}
		for i := range p.Absent {
			m[p.Absent[i].EndpointKey] = "absent"
		}
		for i := range p.Tombstones {
			m[p.Tombstones[i].EndpointKey] = "deleted"
		}
		return m
	}
	was := state(former)
	for k, is := range state(next) {
		switch {
		case was[k] == is || was[k] == "":
		case is == "absent":
			pl.p.Log.Info("An endpoint is not in the manifests any more; its events are held, and unless it comes back it counts as deleted once all manifests have been read without it for "+compile.AbsenceGrace.String(), "endpoint", k.String())
		case is == "deleted":
			pl.p.Log.Info("An endpoint was deleted; what waits for it is dead-lettered unless it is made again in time",
				"endpoint", k.String(), "waiting", pl.p.engine.Store().Counts(k).Waiting(), "within", dispatch.MissingGrace.String())
		case is == "there":
			pl.p.Log.Info("An endpoint is back", "endpoint", k.String())
		}
	}
}

// tellKeys tells of new signing keys: in --dev the key itself, once, since a laptop's
// receiver needs it; else where it is kept.
func (pl *planner) tellKeys(made []corev1.Secret) {
	for i := range made {
		s := &made[i]
		endpoint := s.Name[:len(s.Name)-len("-signing")]
		file := manifest.SigningKeyFile(pl.p.Data, s.Namespace, endpoint)
		if pl.p.Dev {
			_, _ = fmt.Fprintf(pl.p.Out, "Made a signing key for %s/%s: %s\n  (shown this once; kept in %s)\n", s.Namespace, endpoint, signingKeyOf(s), file)
		} else {
			_, _ = fmt.Fprintf(pl.p.Out, "Made a signing key for %s/%s: its receiver finds it in %s\n", s.Namespace, endpoint, file)
		}
	}
}

func signingKeyOf(s *corev1.Secret) string {
	if v, ok := s.StringData["key"]; ok {
		return v
	}
	return string(s.Data["key"])
}

// forwardAll is what runs with --forward-to alone: one endpoint that takes all. It is
// no complete look: what manifests said of other endpoints, if the data folder has
// seen any, still stands.
func forwardAll() manifest.Snapshot {
	return manifest.Snapshot{Objects: compile.Objects{
		Endpoints: []v1alpha1.WebhookEndpoint{{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "forward"},
			Spec:       v1alpha1.WebhookEndpointSpec{URL: "http://localhost/"},
		}},
	}}
}
