package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
)

// InstallationName is the ConfigMap in the namespace of each installation that says which namespaces it looks at. An
// endpoint that two managers reconcile would be two pools' in turn: an installation starts only where no older one looks at
// any of its namespaces.
const InstallationName = "doorstep-installation"

// The keys of that ConfigMap. The account is the name of the manager's ServiceAccount; namespaces are separated by commas,
// and allNamespaces stands for every one.
const (
	installationAccount    = "account"
	installationNamespaces = "namespaces"
	allNamespaces          = "*"
)

// installationInterval is the time between two looks at other installations: two that start in one moment may miss
// each other.
const installationInterval = time.Minute

// installation keeps managers of other namespaces apart. Managers of one namespace are for the leader's Lease.
type installation struct {
	client    client.Client
	live      client.Reader
	namespace string
	// watched are the namespaces that are looked at beside it; empty: all.
	watched []string
	log     logr.Logger
}

// NeedLeaderElection: each manager looks for itself.
func (*installation) NeedLeaderElection() bool { return false }

// Start looks at other installations now and then, and fails when an older one has come to look at the same namespaces.
func (i *installation) Start(ctx context.Context) error {
	t := time.NewTicker(installationInterval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		err := i.check(ctx)
		if conflict := (*installationConflict)(nil); errors.As(err, &conflict) {
			return err
		}
		if err != nil && ctx.Err() == nil {
			i.log.V(1).Info("Other installations can't be looked at; it is tried again", "error", err.Error())
		}
	}
}

// installationConflict says whose namespaces they are.
type installationConflict struct{ other, own, what string }

func (e *installationConflict) Error() string {
	return fmt.Sprintf("the installation in namespace %s, which is older, looks at %s: one manager reconciles a namespace, so this one, in namespace %s, does nothing; "+
		"remove one of the two, or let each look at namespaces of its own by --watch-namespaces", e.other, e.what, e.own)
}

// claim notes this installation, and fails if it must not start.
func (i *installation) claim(ctx context.Context) error {
	account, err := i.account(ctx)
	if err != nil {
		return fmt.Errorf("ask the API server who this manager is: %w", err)
	}
	want := map[string]string{installationAccount: account, installationNamespaces: cmp.Or(strings.Join(i.all(), ","), allNamespaces)}
	var is corev1.ConfigMap
	err = i.live.Get(ctx, client.ObjectKey{Namespace: i.namespace, Name: InstallationName}, &is)
	if err == nil && is.Data[installationAccount] == want[installationAccount] && is.Data[installationNamespaces] == want[installationNamespaces] {
		return i.check(ctx)
	}
	if client.IgnoreNotFound(err) == nil {
		labels := map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelName: v1alpha1.AppName}
		err = i.client.Apply(ctx, applycore.ConfigMap(InstallationName, i.namespace).WithLabels(labels).WithData(want), client.ForceOwnership)
	}
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("note this installation: %w; the manager's ServiceAccount lacks the rights of one: apply all of its manifests, "+
			"and see whether another installation has them (kubectl get clusterrolebinding doorstep-manager -o yaml)", err)
	}
	if err != nil {
		return fmt.Errorf("note this installation in ConfigMap %s/%s: %w", i.namespace, InstallationName, err)
	}
	return i.check(ctx)
}

// all are the namespaces that are looked at, sorted; none: all.
func (i *installation) all() []string {
	if len(i.watched) == 0 {
		return nil
	}
	all := append([]string{i.namespace}, i.watched...)
	slices.Sort(all)
	return slices.Compact(all)
}

// account is the name of the ServiceAccount that the manager runs as; empty if it is none of this namespace, such as a
// person's: other installations then take no notice of it.
func (i *installation) account(ctx context.Context) (string, error) {
	var me authenticationv1.SelfSubjectReview
	if err := i.client.Create(ctx, &me); err != nil {
		return "", err
	}
	name, _ := strings.CutPrefix(me.Status.UserInfo.Username, serviceAccountPrefix+i.namespace+":")
	if name == me.Status.UserInfo.Username {
		return "", nil
	}
	return name, nil
}

const serviceAccountPrefix = "system:serviceaccount:"

// check looks for an older installation that looks at a namespace of this one's.
func (i *installation) check(ctx context.Context) error {
	var list corev1.ConfigMapList
	err := i.live.List(ctx, &list, client.MatchingFields{metav1.ObjectNameField: InstallationName})
	if apierrors.IsForbidden(err) && len(i.watched) > 0 {
		i.log.Info("Whether another installation looks at the same namespaces can't be told, since ConfigMaps named " + InstallationName + " can't be listed: see config/namespaced for the right")
		return nil
	}
	if err != nil {
		return fmt.Errorf("list ConfigMaps named %s: %w", InstallationName, err)
	}
	slices.SortFunc(list.Items, func(a, b corev1.ConfigMap) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace))
	})
	for k := range list.Items {
		other := &list.Items[k]
		if other.Namespace == i.namespace {
			return nil // the rest is younger
		}
		what, err := i.overlap(ctx, other)
		if err != nil {
			return err
		}
		if what != "" {
			return &installationConflict{other: other.Namespace, own: i.namespace, what: what}
		}
	}
	return nil
}

// overlap says which namespaces another installation really looks at that this one looks at as well; empty if none. Anybody
// can make a ConfigMap of that name. One counts as far as its ServiceAccount has a manager's rights: so a tenant stops
// nobody, and neither does an installation that was removed.
func (i *installation) overlap(ctx context.Context, other *corev1.ConfigMap) (string, error) {
	account := other.Data[installationAccount]
	if account == "" {
		return "", nil
	}
	theirs, mine := strings.Split(other.Data[installationNamespaces], ","), i.all()
	common := theirs
	if slices.Contains(theirs, allNamespaces) {
		if common = mine; len(mine) == 0 {
			common = []string{metav1.NamespaceAll}
		}
	} else if len(mine) > 0 {
		common = slices.DeleteFunc(theirs, func(n string) bool { return !slices.Contains(mine, n) })
	}
	for _, namespace := range common {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:   serviceAccountPrefix + other.Namespace + ":" + account,
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + other.Namespace, "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: namespace, Verb: "patch", Group: v1alpha1.GroupName, Resource: "webhookendpoints", Subresource: "status",
			},
		}}
		if err := i.client.Create(ctx, review); err != nil {
			return "", fmt.Errorf("ask what the installation in namespace %s may do: %w", other.Namespace, err)
		}
		switch {
		case !review.Status.Allowed:
		case namespace == metav1.NamespaceAll:
			return "all namespaces", nil
		default:
			return "namespace " + namespace, nil
		}
	}
	return "", nil
}
