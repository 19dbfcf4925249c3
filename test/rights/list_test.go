package rights

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/test/cluster"
)

// who is somebody whose rights are listed: a ServiceAccount as namespace/name, or else a person.
type who string

// client asks the API server in their place.
func (w who) client(t *testing.T, c *cluster.Cluster) client.Client {
	t.Helper()
	cfg := c.Config()
	cfg.Impersonate = rest.ImpersonationConfig{UserName: string(w), Groups: []string{"system:authenticated"}}
	if ns, name, ok := strings.Cut(string(w), "/"); ok {
		cfg.Impersonate.UserName = "system:serviceaccount:" + ns + ":" + name
		cfg.Impersonate.Groups = append(cfg.Impersonate.Groups, "system:serviceaccounts", "system:serviceaccounts:"+ns)
	}
	cl, err := client.New(cfg, client.Options{Scheme: cluster.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return cl
}

// rights are what somebody may do in a namespace by RBAC, cluster-wide rights among it, one line for each resource: such as
// "get list secrets [a b]".
func rights(t *testing.T, c *cluster.Cluster, w who, namespace string) []string {
	t.Helper()
	review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}
	if err := w.client(t, c).Create(t.Context(), review); err != nil {
		t.Fatal(err)
	}
	if review.Status.Incomplete {
		t.Fatalf("the rights of %s can't be listed: %s", w, review.Status.EvaluationError)
	}
	verbs := map[string][]string{}
	add := func(what string, names, more []string) {
		if len(names) > 0 {
			what += " [" + shards(names) + "]"
		}
		verbs[what] = append(verbs[what], more...)
	}
	for _, rule := range review.Status.ResourceRules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				if group != "" {
					resource += "." + group
					if r, sub, ok := strings.Cut(resource, "/"); ok {
						sub, _, _ = strings.Cut(sub, ".")
						resource = r + "." + group + "/" + sub
					}
				}
				add(resource, rule.ResourceNames, rule.Verbs)
			}
		}
	}
	for _, rule := range review.Status.NonResourceRules {
		for _, url := range rule.NonResourceURLs {
			add(url, nil, rule.Verbs)
		}
	}
	var lines []string
	for what, v := range verbs {
		slices.Sort(v)
		lines = append(lines, fmt.Sprintf("%s: %s", what, strings.Join(slices.Compact(v), " ")))
	}
	slices.Sort(lines)
	return lines
}

// shards names the 64 shards of a plan by the first and the last.
func shards(names []string) string {
	names = slices.Clone(names)
	slices.Sort(names)
	first := slices.IndexFunc(names, func(n string) bool { return strings.HasSuffix(n, "-plan-00") })
	if first >= 0 && len(names) >= first+v1alpha1.PlanShards && strings.HasSuffix(names[first+v1alpha1.PlanShards-1], "-plan-63") {
		names = slices.Replace(names, first, first+v1alpha1.PlanShards, names[first]+"…"+names[first+v1alpha1.PlanShards-1])
	}
	return strings.Join(names, " ")
}

// place is a namespace, by what it is to the installation.
type place struct{ name, namespace string }

// listing says of each of them what they may do in each place. What everybody may do is left out, and so is a place where
// it is the same as in the one before.
func listing(t *testing.T, c *cluster.Cluster, people []struct {
	name string
	who  who
}, places []place,
) string {
	t.Helper()
	var text strings.Builder
	for _, p := range people {
		fmt.Fprintf(&text, "%s\n", p.name)
		var before []string
		for i, at := range places {
			everybody := who("somebody")
			if strings.Contains(string(p.who), "/") {
				everybody = "default/somebody"
			}
			common := rights(t, c, everybody, at.namespace)
			lines := slices.DeleteFunc(rights(t, c, p.who, at.namespace), func(l string) bool { return slices.Contains(common, l) })
			fmt.Fprintf(&text, "  in %s\n", at.name)
			switch {
			case len(lines) == 0:
				text.WriteString("    nothing\n")
			case i > 0 && slices.Equal(lines, before):
				fmt.Fprintf(&text, "    as in %s\n", places[i-1].name)
			default:
				for _, l := range lines {
					fmt.Fprintf(&text, "    %s\n", l)
				}
			}
			before = lines
		}
		text.WriteString("\n")
	}
	return text.String()
}

// golden compares a text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got == string(want) {
		return
	}
	for _, l := range strings.Split(got, "\n") {
		if !slices.Contains(strings.Split(string(want), "\n"), l) {
			t.Errorf("not in %s: %s", path, l)
		}
	}
	for _, l := range strings.Split(string(want), "\n") {
		if !slices.Contains(strings.Split(got, "\n"), l) {
			t.Errorf("only in %s: %s", path, l)
		}
	}
	t.Errorf("rights are not those of %s; if they should be, run the test with -update", path)
}

// bind gives somebody a ClusterRole in a namespace, or everywhere if it is empty.
func bind(t *testing.T, c *cluster.Cluster, w who, role, namespace string) {
	t.Helper()
	subject := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: string(w)}
	if ns, name, ok := strings.Cut(string(w), "/"); ok {
		subject = rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: name}
	}
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "test-" + strings.ReplaceAll(string(w), "/", "-") + "-" + role}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
	var o client.Object = &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: []rbacv1.Subject{subject}}
	if namespace == "" {
		o = &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: []rbacv1.Subject{subject}}
	}
	if err := c.Client.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// aggregated are the ClusterRoles that a cluster adds to its own role view, edit or admin.
func aggregated(t *testing.T, c *cluster.Cluster, to string) []string {
	t.Helper()
	var roles rbacv1.ClusterRoleList
	if err := c.Client.List(t.Context(), &roles, client.MatchingLabels{"rbac.authorization.k8s.io/aggregate-to-" + to: "true"}); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range roles.Items {
		if !strings.HasPrefix(r.Name, "system:") {
			names = append(names, r.Name)
		}
	}
	return names
}
