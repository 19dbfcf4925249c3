package gitops

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/doorstep-dev/doorstep/test/cluster"
)

var kinds = []string{"WebhookEndpoint", "RetryPolicy", "DeliveryPool"}

// made is an object of generation 2 with a status written by hand.
func made(t *testing.T, kind, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	all := "apiVersion: doorstep.dev/v1alpha1\nkind: " + kind + "\nmetadata: {name: orders, namespace: shop, generation: 2}\n" + text
	if err := yaml.Unmarshal([]byte(all), &u.Object); err != nil {
		t.Fatal(err)
	}
	u.SetGeneration(2) // YAML knows no integers
	if observed, ok, err := unstructured.NestedFloat64(u.Object, "status", "observedGeneration"); ok && err == nil {
		if err := unstructured.SetNestedField(u.Object, int64(observed), "status", "observedGeneration"); err != nil {
			t.Fatal(err)
		}
	}
	return u
}

// condition is one as it is in YAML, in a list.
func condition(kind, status, reason, message string) string {
	return "  - {type: " + kind + ", status: \"" + status + "\", reason: " + reason + ", message: \"" + message + "\", observedGeneration: 2}\n"
}

const current = "status:\n  observedGeneration: 2\n  conditions:\n"

// What the scripts and kstatus say of statuses of every sort. Rows of all kinds hold the three scripts to each other.
func TestHealthOfStatuses(t *testing.T) {
	ready := condition("Ready", "True", "Accepted", "Fine")
	rows := []struct {
		name string
		// kind is empty for all.
		kind, object string
		kstatus      status.Status
		argo         Health
	}{
		{"no status at all", "", "spec: {}\n", status.CurrentStatus, Health{"Progressing", "Waiting for the manager"}}, // only without the CRD's default
		{"before the first pass", "", "status: {observedGeneration: -1}\n", status.InProgressStatus, Health{"Progressing", "Waiting for the manager"}},
		{"edited since", "", "status:\n  observedGeneration: 1\n  conditions:\n" + ready, status.InProgressStatus, Health{"Progressing", "Waiting for the manager"}},
		{"edited since it was stalled", "", "status:\n  observedGeneration: 1\n  conditions:\n" + condition("Ready", "False", "SpecInvalid", "Bad") + condition("Stalled", "True", "SpecInvalid", "Bad"),
			status.InProgressStatus, Health{"Progressing", "Waiting for the manager"}},
		{"ready", "", current + ready, status.CurrentStatus, Health{"Healthy", "Accepted: Fine"}},
		{"progressing", "", current + condition("Ready", "False", "Progressing", "Under way") + condition("Reconciling", "True", "Progressing", "Under way"),
			status.InProgressStatus, Health{"Progressing", "Progressing: Under way"}},
		{"stalled", "", current + condition("Ready", "False", "SpecInvalid", "Mend it") + condition("Stalled", "True", "SpecInvalid", "Mend it"),
			status.FailedStatus, Health{"Degraded", "SpecInvalid: Mend it"}},
		{"Ready is unknown", "", current + condition("Ready", "Unknown", "PoolUnavailable", "No worker"), status.InProgressStatus, Health{"Unknown", "PoolUnavailable: No worker"}},

		{"the worker wrote first", "WebhookEndpoint", "status:\n  observedGeneration: -1\n  conditions:\n" + condition("Delivering", "True", "Active", "Goes"),
			status.InProgressStatus, Health{"Progressing", "Waiting for the manager"}},
		{"conditions of the worker alone", "WebhookEndpoint", current + condition("Delivering", "True", "Active", "Goes"),
			status.CurrentStatus, Health{"Progressing", "Waiting for the manager"}}, // the manager writes both at once
		{"delivering", "WebhookEndpoint", current + ready + condition("Delivering", "True", "Active", "Goes") + condition("Healthy", "True", "Succeeding", "Good"),
			status.CurrentStatus, Health{"Healthy", "Accepted: Fine"}},
		{"the receiver is down", "WebhookEndpoint", current + ready + condition("Delivering", "False", "BackingOff", "503") + condition("Healthy", "False", "Degraded", "Fails"),
			status.CurrentStatus, Health{"Healthy", "BackingOff: 503"}},
		{"the receiver fails at times", "WebhookEndpoint", current + ready + condition("Delivering", "True", "Active", "Goes") + condition("Healthy", "False", "Degraded", "Fails"),
			status.CurrentStatus, Health{"Healthy", "Degraded: Fails"}},
		{"disabled", "WebhookEndpoint", current + ready + condition("Delivering", "False", "Disabled", "The receiver answered 410 Gone"),
			status.CurrentStatus, Health{"Healthy", "Disabled: The receiver answered 410 Gone"}},
		{"suspended", "WebhookEndpoint", "spec: {suspend: true}\n" + current + ready + condition("Delivering", "False", "Suspended", "Suspended"),
			status.CurrentStatus, Health{"Healthy", "Suspended: Suspended"}},
		{"waits for a Secret", "WebhookEndpoint", current + condition("Ready", "False", "SecretNotFound", "Create it") + condition("Reconciling", "True", "SecretNotFound", "Create it") +
			condition("Delivering", "False", "Unresolved", "Held"), status.InProgressStatus, Health{"Progressing", "SecretNotFound: Create it"}},
		{"stalled and disabled", "WebhookEndpoint", current + condition("Ready", "False", "KeyInvalid", "Mend it") + condition("Stalled", "True", "KeyInvalid", "Mend it") +
			condition("Delivering", "False", "Disabled", "410"), status.FailedStatus, Health{"Degraded", "KeyInvalid: Mend it"}},

		{"its worker is away", "DeliveryPool", current + condition("Ready", "False", "WorkerUnavailable", "No worker"),
			status.InProgressStatus, Health{"Degraded", "WorkerUnavailable: No worker"}}, // case GO185
		{"nearly full", "DeliveryPool", current + ready + condition("StorePressure", "True", "LowSpace", "Make room"),
			status.CurrentStatus, Health{"Healthy", "LowSpace: Make room"}},
		{"room enough", "DeliveryPool", current + ready + condition("StorePressure", "False", "EnoughSpace", "Room"), status.CurrentStatus, Health{"Healthy", "Accepted: Fine"}},
		{"a suspended pool", "DeliveryPool", "spec: {suspend: true}\n" + current + ready, status.CurrentStatus, Health{"Healthy", "Suspended: events are accepted and held"}},
		{"no volume", "DeliveryPool", current + condition("Ready", "False", "VolumePending", "No class") + condition("Reconciling", "True", "VolumePending", "No class"),
			status.InProgressStatus, Health{"Progressing", "VolumePending: No class"}},
	}
	for _, row := range rows {
		of := kinds
		if row.kind != "" {
			of = []string{row.kind}
		}
		for _, kind := range of {
			t.Run(kind+"/"+row.name, func(t *testing.T) {
				u := made(t, kind, row.object)
				if got, err := KStatus(u); err != nil || got != row.kstatus {
					t.Errorf("kstatus says %s, %v; want %s", got, err, row.kstatus)
				}
				if got, err := ArgoHealth(u); err != nil || got != row.argo {
					t.Errorf("Argo CD says %+v, %v; want %+v", got, err, row.argo)
				}
			})
		}
	}
}

// A script that fails fails the health of the object, and Argo CD shows an error: none does, whatever is left out.
func TestScriptsTakeWhatIsIncomplete(t *testing.T) {
	for _, kind := range kinds {
		for _, object := range []string{
			"", "status: {}\n", "status: {observedGeneration: 2}\n", "status: {observedGeneration: 2, conditions: []}\n",
			"status: {observedGeneration: 2, conditions: [{type: Ready}]}\n", "status: {observedGeneration: 2, conditions: [{type: Ready, status: \"False\"}]}\n",
			current + "  - {type: Ready, status: \"True\"}\n  - {type: Delivering, status: \"False\"}\n  - {type: StorePressure, status: \"True\"}\n",
		} {
			if health, err := ArgoHealth(made(t, kind, object)); err != nil || health.Message == "" {
				t.Errorf("%s with %q: %+v, %v", kind, object, health, err)
			}
		}
	}
}

// The ConfigMap for Argo CD has the scripts of config/argocd/health, and the three begin alike: what kstatus goes by is
// judged in one way.
func TestScriptsAreTheSameEverywhere(t *testing.T) {
	root, err := cluster.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "config", "argocd", "argocd-cm.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var configMap struct{ Data map[string]string }
	if err := yaml.Unmarshal(text, &configMap); err != nil {
		t.Fatal(err)
	}
	if len(configMap.Data) != len(kinds) {
		t.Errorf("argocd-cm.yaml has %d entries, want %d", len(configMap.Data), len(kinds))
	}
	common := ""
	for _, kind := range kinds {
		path, err := ScriptPath(kind)
		if err != nil {
			t.Fatal(err)
		}
		script, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if configMap.Data["resource.customizations.health.doorstep.dev_"+kind] != string(script) {
			t.Errorf("argocd-cm.yaml has another script for %s than %s", kind, path)
		}
		_, code, ok := strings.Cut(string(script), "local status")
		code, _, end := strings.Cut(code, "if is(\"Ready\", \"False\")")
		switch {
		case !ok || !end:
			t.Errorf("%s has no common part", path)
		case common == "":
			common = code
		case code != common:
			t.Errorf("%s judges otherwise than the script of %s what both have", path, kinds[0])
		}
	}
}
