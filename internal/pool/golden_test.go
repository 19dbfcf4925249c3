package pool

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
)

var update = flag.Bool("update", false, "write the golden files anew")

func poolOf(t *testing.T, spec string) *v1alpha1.DeliveryPool {
	t.Helper()
	p := &v1alpha1.DeliveryPool{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.KindDeliveryPool},
		ObjectMeta: metav1.ObjectMeta{Namespace: "doorstep-system", Name: "default", UID: "b3b1c6d5-0000-4000-8000-000000000001"},
	}
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		t.Fatal(err)
	}
	return p
}

// full sets every field that shows in an object.
const full = `
store: {type: Embedded, embedded: {size: 20Gi, storageClassName: fast, accessMode: ReadWriteOncePod}}
ingest: {tls: {secretRef: {name: ingest-tls}}, service: {type: LoadBalancer, annotations: {example.com/lb: internal}, ipFamilyPolicy: PreferDualStack}}
monitoring: {labels: {release: prometheus}, interval: 30s}
template:
  labels: {team: platform}
  annotations: {example.com/note: text}
  resources: {requests: {cpu: 200m}, limits: {memory: 1Gi}}
  nodeSelector: {disk: ssd}
  tolerations: [{key: queue, operator: Exists, effect: NoSchedule}]
  affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: disk, operator: Exists}]}]}}}
  topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]
  priorityClassName: high
  imagePullSecrets: [{name: registry}]
  podSecurityContext: {runAsUser: 1000, runAsGroup: 1001, fsGroup: 1002, supplementalGroups: [1003]}
`

func TestGoldenObjects(t *testing.T) {
	for name, row := range map[string]struct {
		spec     string
		settings Settings
	}{
		"defaults":   {"{}", Settings{Image: "registry.example.com/doorstep:v1"}},
		"full":       {full, Settings{Image: "registry.example.com/doorstep:v1", ServiceMonitor: true, Restart: "2026-12-01T00:00:00Z"}},
		"namespaced": {"networkPolicy: None", Settings{Image: "registry.example.com/doorstep:v1", Namespaces: []string{"billing", "shop"}}},
	} {
		t.Run(name, func(t *testing.T) {
			var text strings.Builder
			for _, o := range Build(poolOf(t, row.spec), row.settings).All() {
				b, err := yaml.Marshal(o)
				if err != nil {
					t.Fatal(err)
				}
				text.WriteString("---\n" + string(b))
			}
			file := filepath.Join("testdata", name+".yaml")
			if *update {
				if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if text.String() != string(want) {
				t.Errorf("%s is not what Build gives (run the test with -update and look at the difference)", file)
			}
		})
	}
}

// The pods run under the restricted Pod Security Standard, whatever the template says.
func TestPodsAreRestricted(t *testing.T) {
	for _, spec := range []string{"{}", full} {
		pod := Build(poolOf(t, spec), Settings{Image: "i"}).StatefulSet.Spec.Template.Spec
		security := pod.SecurityContext
		if !*security.RunAsNonRoot || *security.RunAsUser == 0 || *security.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
			t.Errorf("the pod's security context is %+v", security)
		}
		for _, c := range pod.Containers {
			s := c.SecurityContext
			if *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(s.Capabilities.Add) > 0 {
				t.Errorf("the container's security context is %+v", s)
			}
		}
		for _, v := range pod.Volumes {
			if v.HostPath != nil {
				t.Errorf("volume %s is a path of the node", *v.Name)
			}
		}
	}
}

// A worker may read no Secret but those of its own plan, and touches each thing by name.
func TestRoleNamesEverything(t *testing.T) {
	for _, r := range Build(poolOf(t, "{}"), Settings{Image: "i"}).Role.Rules {
		if len(r.ResourceNames) == 0 {
			t.Errorf("the rule for %v names no object", r.Resources)
		}
		for _, name := range r.ResourceNames {
			if r.Resources[0] == "secrets" && !strings.HasPrefix(name, "default-plan") {
				t.Errorf("a worker may read Secret %s", name)
			}
		}
	}
}

func TestNamesFit(t *testing.T) {
	p := poolOf(t, "{}")
	p.Name = strings.Repeat("p", 45)
	o := Build(p, Settings{Image: "i"})
	// A pod carries the StatefulSet's name with a dash and a hash of ten characters as a label.
	if n := len(*o.StatefulSet.Name) + 11; n > 63 {
		t.Errorf("the StatefulSet's name makes a label of %d characters", n)
	}
	for _, s := range o.Services {
		if len(*s.Name) > 63 {
			t.Errorf("Service %s has a name of %d characters", *s.Name, len(*s.Name))
		}
	}
}
