package controllers

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// installations answers as an API server with these ConfigMaps, where the manager of each has its rights in some namespaces
// ("" for all).
func installations(t *testing.T, maps []corev1.ConfigMap, rights map[string][]string) client.Client {
	return interceptor.NewClient(nil, interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
			list.(*corev1.ConfigMapList).Items = maps
			return nil
		},
		Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			r, ok := o.(*authorizationv1.SubjectAccessReview)
			if !ok {
				t.Fatalf("%T is created", o)
			}
			has := rights[r.Spec.User]
			r.Status.Allowed = slices.Contains(has, "") || slices.Contains(has, r.Spec.ResourceAttributes.Namespace)
			return nil
		},
	})
}

func TestWhichInstallationStarts(t *testing.T) {
	noon := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	at := func(namespace, account, watched string, seconds int) corev1.ConfigMap {
		return corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: InstallationName, CreationTimestamp: metav1.NewTime(noon.Add(time.Duration(seconds) * time.Second))},
			Data:       map[string]string{installationAccount: account, installationNamespaces: watched},
		}
	}
	const manager = "doorstep-manager"
	everywhere := map[string][]string{"system:serviceaccount:other:" + manager: {""}}
	for _, row := range []struct {
		name    string
		watched []string // by ours, in namespace own, made at second 10
		other   corev1.ConfigMap
		rights  map[string][]string
		want    string // what they share; empty: ours starts
	}{
		{"both look at all", nil, at("other", manager, "*", 0), everywhere, "all namespaces"},
		{"the other is younger", nil, at("other", manager, "*", 20), everywhere, ""},
		{"both made in one second, the other later by name", nil, at("p", manager, "*", 10), map[string][]string{"system:serviceaccount:p:" + manager: {""}}, ""},
		{"both made in one second, the other first by name", nil, at("a", manager, "*", 10), map[string][]string{"system:serviceaccount:a:" + manager: {""}}, "all namespaces"},
		{"the other looks at some", nil, at("other", manager, "other,shop", 0), map[string][]string{"system:serviceaccount:other:" + manager: {"shop"}}, "namespace shop"},
		{"ours looks at some", []string{"shop"}, at("other", manager, "*", 0), everywhere, "namespace own"},
		{"they share one", []string{"shop"}, at("other", manager, "bills,other,shop", 0), everywhere, "namespace shop"},
		{"they share none", []string{"shop"}, at("other", manager, "bills,other", 0), everywhere, ""},
		{"the other was removed", nil, at("other", manager, "*", 0), nil, ""},
		{"a tenant with rights in its own namespace says so", nil, at("other", manager, "*", 0), map[string][]string{"system:serviceaccount:other:" + manager: {"other"}}, ""},
		{"a tenant names another's account", nil, at("other", "x:"+manager, "*", 0), map[string][]string{"system:serviceaccount:x:" + manager: {""}}, ""},
		{"a person's manager", nil, at("other", "", "*", 0), everywhere, ""},
	} {
		own := at("own", manager, "", 10)
		cl := installations(t, []corev1.ConfigMap{own, row.other}, row.rights)
		err := (&installation{client: cl, live: cl, namespace: "own", watched: row.watched, log: logr.Discard()}).check(t.Context())
		got := ""
		if conflict := (*installationConflict)(nil); errors.As(err, &conflict) {
			got = conflict.what
		} else if err != nil {
			t.Errorf("%s: %v", row.name, err)
		}
		if got != row.want {
			t.Errorf("%s: shared is %q (%v), want %q", row.name, got, err, row.want)
		}
	}
}
