package compile

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

var inCluster = Options{Cluster: true}

// town is a world with the namespaces shop and other, and a Service in each.
func town(change func(*v1alpha1.WebhookEndpointSpec)) Objects {
	var changes []func(*v1alpha1.WebhookEndpointSpec)
	if change != nil {
		changes = append(changes, change)
	}
	in := world(changes...)
	in.Complete = false // as the manager looks
	in.Namespaces = []Namespace{
		{Name: "shop", UID: "u1", Labels: map[string]string{"team": "shop"}},
		{Name: "other", UID: "u2"},
	}
	for _, ns := range []string{"shop", "other"} {
		in.Services = append(in.Services, service(ns, nil))
	}
	return in
}

func service(namespace string, change func(*corev1.ServiceSpec)) corev1.Service {
	s := corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "receiver"},
		Spec: corev1.ServiceSpec{
			ClusterIP: "10.96.0.7", ClusterIPs: []string{"10.96.0.7", "fd00::7"}, Selector: map[string]string{"app": "receiver"},
			Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}, {Port: 8443}, {Port: 53, Protocol: corev1.ProtocolUDP}},
		},
	}
	if change != nil {
		change(&s.Spec)
	}
	return s
}

func toService(ref v1alpha1.ServiceReference) func(*v1alpha1.WebhookEndpointSpec) {
	return func(s *v1alpha1.WebhookEndpointSpec) { s.URL, s.ServiceRef = "", &ref }
}

func TestServiceIsResolved(t *testing.T) {
	for _, row := range []struct {
		name      string
		ref       v1alpha1.ServiceReference
		url, dial string
	}{
		{"defaults", v1alpha1.ServiceReference{Name: "receiver"}, "http://receiver.shop.svc/", "10.96.0.7:80"},
		{"a path with a query", v1alpha1.ServiceReference{Name: "receiver", Path: "/in?a=b"}, "http://receiver.shop.svc/in?a=b", "10.96.0.7:80"},
		{"https on another port", v1alpha1.ServiceReference{Name: "receiver", Scheme: v1alpha1.ServiceSchemeHTTPS, Port: ptr(int32(8443))}, "https://receiver.shop.svc:8443/", "10.96.0.7:8443"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := Compile(town(toService(row.ref)), nil, start, inCluster)
			e := one(t, r)
			if e.Problem != nil || e.URL != row.url {
				t.Fatalf("URL %q, problem %v; want %q and none", e.URL, e.Problem, row.url)
			}
			if len(e.Service.Addresses) != 2 || e.Service.Addresses[0] != netip.MustParseAddrPort(row.dial) {
				t.Errorf("addresses %v, want %s first and one of IPv6", e.Service.Addresses, row.dial)
			}
		})
	}
}

// case GO187: what is not there, or not allowed, is said.
func TestServiceProblems(t *testing.T) {
	receiver := v1alpha1.ServiceReference{Name: "receiver"}
	elsewhere := v1alpha1.ServiceReference{Name: "receiver", Namespace: "other"}
	for _, row := range []struct {
		name          string
		ref           v1alpha1.ServiceReference
		change        func(*Objects)
		field, reason string
		words         string
	}{
		{name: "missing", ref: v1alpha1.ServiceReference{Name: "gone"}, field: "spec.serviceRef.name", reason: v1alpha1.ReasonServiceNotFound, words: "does not exist in namespace shop"},
		{name: "external", ref: receiver, change: spec(func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeExternalName }), field: "spec.serviceRef.name", reason: v1alpha1.ReasonServiceUnusable, words: "set url instead"},
		{name: "headless", ref: receiver, change: spec(func(s *corev1.ServiceSpec) { s.ClusterIP, s.ClusterIPs = "None", []string{"None"} }), field: "spec.serviceRef.name", reason: v1alpha1.ReasonServiceUnusable, words: "headless"},
		{name: "without selector", ref: receiver, change: spec(func(s *corev1.ServiceSpec) { s.Selector = nil }), field: "spec.serviceRef.name", reason: v1alpha1.ReasonServiceUnusable, words: "no selector"},
		{name: "no such port", ref: v1alpha1.ServiceReference{Name: "receiver", Port: ptr(int32(81))}, field: "spec.serviceRef.port", reason: v1alpha1.ReasonServiceUnusable, words: "no TCP port 81"},
		{name: "a port of UDP", ref: v1alpha1.ServiceReference{Name: "receiver", Port: ptr(int32(53))}, field: "spec.serviceRef.port", reason: v1alpha1.ReasonServiceUnusable, words: "no TCP port 53"},
		{name: "no address yet", ref: receiver, change: spec(func(s *corev1.ServiceSpec) { s.ClusterIP, s.ClusterIPs = "", nil }), field: "spec.serviceRef.name", reason: v1alpha1.ReasonServiceNotFound, words: "no cluster IP yet"},
		{name: "another namespace", ref: elsewhere, field: "spec.serviceRef.namespace", reason: v1alpha1.ReasonRefNotPermitted, words: "create a ReferenceGrant in other from kind WebhookEndpoint of group doorstep.dev, namespace shop"},
		{name: "a grant for others", ref: elsewhere, change: grants(Grant{Namespace: "other", From: "billing"}, Grant{Namespace: "shop", From: "shop"}, Grant{Namespace: "other", From: "shop", Service: "web"}), field: "spec.serviceRef.namespace", reason: v1alpha1.ReasonRefNotPermitted, words: "ReferenceGrant"},
		{name: "a grant", ref: elsewhere, change: grants(Grant{Namespace: "other", From: "shop"})},
		{name: "a grant for the one Service", ref: elsewhere, change: grants(Grant{Namespace: "other", From: "shop", Service: "receiver"})},
	} {
		t.Run(row.name, func(t *testing.T) {
			in := town(toService(row.ref))
			if row.change != nil {
				row.change(&in)
			}
			checkFault(t, Compile(in, nil, start, inCluster), row.field, row.reason, row.words)
		})
	}
	t.Run("without a cluster", func(t *testing.T) {
		checkFault(t, Compile(town(toService(receiver)), nil, start, Options{}), "spec.serviceRef", v1alpha1.ReasonServiceNotFound, "needs a cluster")
	})
}

func spec(change func(*corev1.ServiceSpec)) func(*Objects) {
	return func(in *Objects) { in.Services = []corev1.Service{service("shop", change)} }
}

func grants(g ...Grant) func(*Objects) { return func(in *Objects) { in.Grants = g } }

func TestURLFromSecret(t *testing.T) {
	from := func(s *v1alpha1.WebhookEndpointSpec) {
		s.URL, s.URLFrom = "", &v1alpha1.URLSource{SecretKeyRef: v1alpha1.SecretKeyReference{Name: "hook", Key: "url"}}
	}
	for _, row := range []struct {
		name          string
		text          *string
		field, reason string
		words         string
	}{
		{name: "a URL", text: ptr("https://hooks.example.com/t0ken")},
		{name: "no Secret", field: "spec.urlFrom.secretKeyRef", reason: v1alpha1.ReasonSecretNotFound, words: "create it with the URL under url"},
		{name: "a newline", text: ptr("https://hooks.example.com/t0ken\n"), field: "spec.urlFrom.secretKeyRef", reason: v1alpha1.ReasonSpecInvalid, words: "ends in a newline"},
		{name: "no URL", text: ptr("t0ken"), field: "spec.urlFrom.secretKeyRef", reason: v1alpha1.ReasonURLInvalid, words: "http"},
		{name: "http", text: ptr("http://hooks.example.com/t0ken"), field: "spec.urlFrom.secretKeyRef", reason: v1alpha1.ReasonURLInvalid, words: "allowHTTP"},
	} {
		t.Run(row.name, func(t *testing.T) {
			in := world(from)
			if row.text != nil {
				in.Secrets = append(in.Secrets, secret("shop", "hook", map[string]string{"url": *row.text}))
			}
			r := Compile(in, nil, start, Options{})
			checkFault(t, r, row.field, row.reason, row.words)
			if row.field == "" && one(t, r).URL != *row.text {
				t.Errorf("URL %q", one(t, r).URL)
			}
			for _, p := range r.Problems {
				if strings.Contains(p.Message, "t0ken") {
					t.Errorf("the message quotes the Secret: %s", p.Message)
				}
			}
		})
	}
}

func TestAnEntryKeepsItsVersionUntilItChanges(t *testing.T) {
	in := town(nil)
	first := Compile(in, nil, start, inCluster).Plan
	if e := first.Endpoints[0]; e.Version != first.Version || e.NamespaceUID != "u1" {
		t.Fatalf("version %d of plan %d, namespace %q", e.Version, first.Version, e.NamespaceUID)
	}
	// Another endpoint comes, and time passes.
	in.Endpoints = append(in.Endpoints, endpoint("payments"))
	in.Secrets = append(in.Secrets, secret("shop", "payments-signing", map[string]string{"key": keyB}))
	second := Compile(in, first, start.Add(time.Hour), inCluster).Plan
	versions := func(p *plan.Plan) (v []uint64) {
		for i := range p.Endpoints {
			v = append(v, p.Endpoints[i].Version)
		}
		return v
	}
	if got, want := versions(second), []uint64{1, 2}; !slices.Equal(got, want) {
		t.Errorf("versions %v, want %v", got, want)
	}
	// A new generation is another entry, even if nothing else changes.
	in.Endpoints[0].Generation = 7
	third := Compile(in, second, start.Add(time.Hour), inCluster).Plan
	if got, want := versions(third), []uint64{3, 2}; !slices.Equal(got, want) {
		t.Errorf("versions %v, want %v", got, want)
	}
	if third.Endpoints[0].Hash != second.Endpoints[0].Hash {
		t.Error("a generation alone is a change of content, which would enable a disabled endpoint")
	}
	if again := Compile(in, third, start.Add(2*time.Hour), inCluster).Plan; again.Version != third.Version {
		t.Errorf("version %d after nothing changed, want %d", again.Version, third.Version)
	}
}

func TestAbsenceInAClusterIsNoDeletion(t *testing.T) {
	in := town(nil)
	first := Compile(in, nil, start, inCluster).Plan
	gone := in
	gone.Endpoints = nil
	later := Compile(gone, first, start.Add(time.Hour), inCluster).Plan
	for range 3 { // however long nobody finds it
		later = Compile(gone, later, start.Add(48*time.Hour), inCluster).Plan
	}
	if len(later.Absent) != 1 || len(later.Tombstones) != 0 {
		t.Fatalf("%d absent and %d deleted, want 1 and 0", len(later.Absent), len(later.Tombstones))
	}
	gone.Gone = []plan.EndpointKey{{Namespace: "shop", Name: "orders"}}
	dead := Compile(gone, later, start.Add(49*time.Hour), inCluster).Plan
	if len(dead.Absent) != 0 || len(dead.Tombstones) != 1 {
		t.Errorf("%d absent and %d deleted, want 0 and 1", len(dead.Absent), len(dead.Tombstones))
	}
	// Made again, it is there whatever a late answer says.
	again := town(nil)
	again.Gone = gone.Gone
	if p := Compile(again, dead, start.Add(50*time.Hour), inCluster).Plan; len(p.Endpoints) != 1 || len(p.Tombstones) != 0 {
		t.Errorf("%d endpoints and %d deleted, want 1 and 0", len(p.Endpoints), len(p.Tombstones))
	}
}

func TestAdmittedNamespaces(t *testing.T) {
	shop := &metav1.LabelSelector{MatchLabels: map[string]string{"team": "shop"}}
	for _, row := range []struct {
		name    string
		allowed *v1alpha1.AllowedNamespaces
		names   []string // nil: all
		there   bool
	}{
		{"unset", nil, nil, true},
		{"all", &v1alpha1.AllowedNamespaces{From: v1alpha1.NamespacesFromAll}, nil, true},
		{"the pool's own", &v1alpha1.AllowedNamespaces{From: v1alpha1.NamespacesFromSame}, []string{"other"}, false},
		{"a selector", &v1alpha1.AllowedNamespaces{From: v1alpha1.NamespacesFromSelector, Selector: shop}, []string{"shop"}, true},
		{"another selector", &v1alpha1.AllowedNamespaces{From: v1alpha1.NamespacesFromSelector, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "x"}}}, []string{}, false},
		{"a selector of everything", &v1alpha1.AllowedNamespaces{From: v1alpha1.NamespacesFromSelector, Selector: &metav1.LabelSelector{}}, []string{"other", "shop"}, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			before := Compile(town(nil), nil, start, inCluster).Plan
			in := town(nil)
			in.Pools = []v1alpha1.DeliveryPool{{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "default"}, Spec: v1alpha1.DeliveryPoolSpec{AllowedNamespaces: row.allowed}}}
			r := Compile(in, before, start, inCluster)
			if got := r.Plan.Pool.Namespaces; (got == nil) != (row.names == nil) || got != nil && !slices.Equal(*got, row.names) {
				t.Errorf("namespaces %v, want %v", got, row.names)
			}
			if there := len(r.Plan.Endpoints) == 1; there != row.there {
				t.Errorf("the endpoint is in the plan: %t, want %t", there, row.there)
			}
			if !row.there {
				if len(r.Plan.Absent) != 1 || len(r.Plan.Tombstones) != 0 {
					t.Errorf("%d absent and %d deleted, want 1 and 0", len(r.Plan.Absent), len(r.Plan.Tombstones))
				}
				if len(r.Problems) != 1 || r.Problems[0].Reason != v1alpha1.ReasonNamespaceNotAllowed {
					t.Errorf("problems %v", r.Problems)
				}
			}
		})
	}
}

func TestAnEntryThatTakesTooMuchRoomIsHeld(t *testing.T) {
	var many []v1alpha1.Header
	for i := range 12 {
		many = append(many, v1alpha1.Header{Name: "X-" + strings.Repeat("a", i+1), Value: strings.Repeat("v", 4096)})
	}
	r := Compile(town(func(s *v1alpha1.WebhookEndpointSpec) {
		s.Headers = many
		s.EventTypes = []v1alpha1.EventTypePattern{"order.*"}
	}), nil, start, inCluster)
	checkFault(t, r, "spec", v1alpha1.ReasonPlanEntryTooLarge, "more than 32 KiB")
	if e := one(t, r); len(e.Headers) != 0 || len(e.EventTypes) != 1 {
		t.Errorf("%d headers and %d event types are kept, want 0 and 1", len(e.Headers), len(e.EventTypes))
	}
}

// An endpoint for which the plan has no room is held, and no other; what is absent is made
// small. Once there is room, it goes on as if nothing had been.
func TestAnEndpointThatFindsNoRoomIsHeld(t *testing.T) {
	in := town(func(s *v1alpha1.WebhookEndpointSpec) {
		s.Headers = []v1alpha1.Header{{Name: "X-Team", Value: "shop"}}
	})
	in.Pools = []v1alpha1.DeliveryPool{{ObjectMeta: metav1.ObjectMeta{Namespace: "doorstep-system", Name: "default"}}}
	before := Compile(in, nil, start, inCluster)
	e := one(t, before)
	if e.Problem != nil || len(e.Headers) != 1 {
		t.Fatalf("at first it has problem %v and %d headers", e.Problem, len(e.Headers))
	}
	full := inCluster
	full.Full = map[plan.EndpointKey]bool{e.EndpointKey: true, {Namespace: "shop", Name: "other"}: true}
	r := Compile(in, before.Plan, start, full)
	held := one(t, r)
	if held.Problem == nil || held.Problem.Reason != v1alpha1.ReasonPlanFull || len(held.Headers) != 0 {
		t.Errorf("its problem is %v, it has %d headers", held.Problem, len(held.Headers))
	}
	if held.Hash != e.Hash || len(held.Signing.Keys) != len(e.Signing.Keys) || held.Version != r.Plan.Version {
		t.Error("it lost what it is known by, or its entry counts as of before")
	}
	var said []Problem
	for _, p := range r.Problems {
		if p.Kind == KindPool {
			said = append(said, p)
		}
	}
	if len(said) != 1 || said[0].Reason != v1alpha1.ReasonPlanFull || !strings.Contains(said[0].Message, "for 1 of") || said[0].Name != "default" {
		t.Errorf("of the pool is said %v", said)
	}
	if again := Compile(in, r.Plan, start, full); again.Plan.Version != r.Plan.Version {
		t.Error("the same again is another plan")
	}
	if after := one(t, Compile(in, r.Plan, start, inCluster)); after.Problem != nil || after.Hash != e.Hash || len(after.Headers) != 1 {
		t.Errorf("with room it has problem %v, another hash: %v", after.Problem, after.Hash != e.Hash)
	}

	away := in
	away.Endpoints = nil
	away.Complete = false
	gone := Compile(away, before.Plan, start, full)
	if len(gone.Plan.Absent) != 1 || len(gone.Plan.Absent[0].Headers) != 0 || len(gone.Plan.Absent[0].Signing.Keys) != len(e.Signing.Keys) {
		t.Errorf("what is absent is not made small: %+v", gone.Plan.Absent)
	}
	for _, p := range gone.Problems {
		if p.Reason == v1alpha1.ReasonPlanFull {
			t.Errorf("of what is absent is said %v", p)
		}
	}
}
