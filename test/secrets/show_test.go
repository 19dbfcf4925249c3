package secrets

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// showNowhere looks for every confidential text, in several forms, in all that manager and worker wrote: their logs, the
// worker's metrics, and every object of the API server but Secrets, Kubernetes Events among them.
func (s *site) showNowhere(t *testing.T) {
	places := map[string]string{"the manager's log": s.manager.Log.String(), "the worker's log": s.pool.Log.String(), "the worker's metrics": s.metrics(t)}
	secrets := ""
	for kind, text := range s.objects(t) {
		if kind == "Secret" {
			secrets = text
			continue
		}
		places[kind] = text
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for what, text := range s.confidential {
		for _, form := range forms(text) {
			for place, all := range places {
				if strings.Contains(all, form) {
					t.Errorf("%s shows in %s", what, place)
				}
			}
		}
	}
	// What was looked at, and that it would have been found.
	for _, place := range []string{"the manager's log", "the worker's log", "the worker's metrics", "WebhookEndpoint", "Event", "Pod", "StatefulSet", "ConfigMap"} {
		if len(places[place]) < 100 {
			t.Errorf("in %s there was nothing to look at: %q", place, places[place])
		}
	}
	for _, n := range []string{"key 0 of endpoint found", "bearer 2 of endpoint found", "token 2 of endpoint found"} {
		text, ok := s.confidential[n]
		if found := slices.ContainsFunc(forms(text), func(form string) bool { return strings.Contains(secrets, form) }); ok && !found {
			t.Errorf("%s is not found where it is, in a Secret", n)
		}
	}
	t.Logf("looked for %d texts in %v", len(s.confidential), slices.Sorted(maps.Keys(places)))
}

// forms are a text as it may be written; of a signing key, the part behind its prefix too.
func forms(text string) []string {
	bare := strings.TrimPrefix(text, "whsec_")
	all := []string{bare, url.QueryEscape(bare), base64.StdEncoding.EncodeToString([]byte(text)), base64.RawURLEncoding.EncodeToString([]byte(text)), hex.EncodeToString([]byte(text))}
	slices.Sort(all)
	return slices.Compact(all)
}

// objects are all objects of the API server as JSON, by their kinds.
func (s *site) objects(t *testing.T) map[string]string {
	t.Helper()
	d, err := discovery.NewDiscoveryClientForConfig(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	lists, err := d.ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") {
				continue
			}
			all[r.Kind] += s.ofKind(t, gv.WithKind(r.Kind))
		}
	}
	return all
}

// ofKind are the objects of a kind as JSON. Of Secrets, only the tenant's are read.
func (s *site) ofKind(t *testing.T, kind schema.GroupVersionKind) string {
	t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	var where []client.ListOption
	if kind.Kind == "Secret" {
		where = append(where, client.InNamespace(namespace))
	}
	if err := s.Client.List(t.Context(), list, where...); err != nil {
		t.Fatalf("listing every %s: %v", kind, err)
	}
	text, err := json.Marshal(list.Items)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (s *site) metrics(t *testing.T) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.pool.Metrics()+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
