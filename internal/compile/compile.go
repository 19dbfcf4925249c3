package compile

import (
	"cmp"
	"net/url"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/deliver/egress"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

// Objects is what was seen in one look. Within a kind, each namespace and name
// stands once; order has no meaning.
type Objects struct {
	Endpoints     []v1alpha1.WebhookEndpoint
	RetryPolicies []v1alpha1.RetryPolicy
	Pools         []v1alpha1.DeliveryPool
	Secrets       []corev1.Secret
	ConfigMaps    []corev1.ConfigMap
	// Refused are endpoints that exist, but whose present text can't be taken and
	// whose former text is not at hand. They go on as the former plan has them.
	Refused []plan.EndpointKey
	// Gone are endpoints that were looked for one by one and are known not to exist: they
	// count as deleted at once, whatever Complete says.
	Gone []plan.EndpointKey
	// Services, Grants and Namespaces are of a cluster (Options.Cluster) only: the Services
	// that serviceRefs name, who may name those of another namespace, and every namespace
	// there is.
	Services   []corev1.Service
	Grants     []Grant
	Namespaces []Namespace
	// Complete is false when something could not be read: then the absence of an
	// object means nothing, and only holds.
	Complete bool
}

// Options are the settings that no object holds.
type Options struct {
	// Dev allows loopback addresses and http, and without ForwardTo refuses every
	// destination that is not loopback.
	Dev bool
	// ForwardTo replaces the address of every endpoint, and allows what Dev allows.
	ForwardTo *url.URL
	// PoolName is the DeliveryPool that gives the settings; empty means "default".
	PoolName string
	// Cluster is set where the objects are those of a cluster, which knows Services and
	// namespaces.
	Cluster bool
	// FirstLook is set on the first compile of a process. Absences that an earlier
	// process noted count anew, since nobody looked in between.
	FirstLook bool
	// Full are endpoints for which the plan has no room as they are: they are held, and made
	// small.
	Full map[plan.EndpointKey]bool
}

// Result is a plan and what is to be told about it.
type Result struct {
	Plan *plan.Plan
	// Problems are sorted by kind, namespace, name and field.
	Problems []Problem
	// NextAt is when compiling the same objects again may give another plan, by the time
	// alone; zero when it never would.
	NextAt time.Time
}

// Problem is one thing wrong with one object, worded as a condition.
type Problem struct {
	Kind, Namespace, Name string
	// Field is the path of the field, such as spec.signing.keys[0].secretKeyRef.
	Field string
	// Reason is one of the reasons of api/v1alpha1; Message is a sentence that
	// tells the way out.
	Reason, Message string
}

// The kinds a Problem speaks of.
const (
	KindEndpoint    = "WebhookEndpoint"
	KindRetryPolicy = "RetryPolicy"
	KindPool        = "DeliveryPool"
)

// compiler is one run of Compile.
type compiler struct {
	opts     Options
	complete bool
	now      time.Time
	previous *plan.Plan
	// former are the endpoints of the former plan, missed those that it noted as absent.
	former, missed map[plan.EndpointKey]*plan.Endpoint
	pool           poolSettings
	guard          *egress.Guard // by the pool's egress; resolves and dials nothing
	policies       map[plan.EndpointKey]policy
	secrets        map[plan.EndpointKey]*corev1.Secret
	configMaps     map[plan.EndpointKey]*corev1.ConfigMap
	cluster        cluster
	problems       []Problem
	next           time.Time // the soonest of lookAgain
}

// Compile makes the plan for the objects in. previous is the plan in force, nil
// if there is none; it is not changed. now is the caller's steady time. The plan's
// version rises by one when its content differs from previous.
//
// A plan is always returned: what can't be used is in it as a held endpoint with a
// Problem, and is told in Problems.
func Compile(in Objects, previous *plan.Plan, now time.Time, opts Options) Result {
	c := &compiler{
		opts:     opts,
		complete: in.Complete,
		now:      now.Round(0).UTC(),
		previous: previous,
		former:   map[plan.EndpointKey]*plan.Endpoint{},
		secrets:  make(map[plan.EndpointKey]*corev1.Secret, len(in.Secrets)),

		configMaps: make(map[plan.EndpointKey]*corev1.ConfigMap, len(in.ConfigMaps)),
	}
	if previous == nil {
		c.previous = &plan.Plan{}
	} else {
		c.former = previous.Index()
		c.missed = make(map[plan.EndpointKey]*plan.Endpoint, len(previous.Absent))
		for i := range previous.Absent {
			c.missed[previous.Absent[i].EndpointKey] = &previous.Absent[i].Endpoint
		}
	}
	for i := range in.Secrets {
		s := &in.Secrets[i]
		c.secrets[plan.EndpointKey{Namespace: s.Namespace, Name: s.Name}] = s
	}
	for i := range in.ConfigMaps {
		m := &in.ConfigMaps[i]
		c.configMaps[plan.EndpointKey{Namespace: m.Namespace, Name: m.Name}] = m
	}

	c.cluster = newCluster(in)
	p := &plan.Plan{Format: plan.Format, Version: 1}
	c.pool = c.compilePool(in.Pools)
	p.Pool = c.pool.plan
	c.guard = egress.NewGuard(egress.PolicyOf(p.Pool.Egress), egress.Options{})
	c.policies = c.compilePolicies(in.RetryPolicies)
	p.Endpoints = c.compileEndpoints(in)
	p.Absent, p.Tombstones = c.compileAbsence(p.Endpoints, in)
	c.reportFull(p)
	c.keepNumbers(p)
	if previous != nil {
		p.Version = previous.Version
		if !plan.Equal(p, previous) {
			p.Version++
		}
	}
	c.numberNewEntries(p)
	slices.SortFunc(c.problems, compareProblems)
	return Result{Plan: p, Problems: slices.Compact(c.problems), NextAt: c.nextAt(p)}
}

func (c *compiler) report(p Problem) { c.problems = append(c.problems, p) }

func compareProblems(a, b Problem) int {
	return cmp.Or(
		cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.Field, b.Field), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Message, b.Message),
	)
}

// local reports whether the options allow loopback addresses and http.
func (o Options) local() bool { return o.Dev || o.ForwardTo != nil }
