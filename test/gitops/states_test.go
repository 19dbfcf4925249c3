package gitops

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/test/cluster"
)

// tools is the namespace of what is brought into each state; oldPolicy is stored there before all else.
const tools, oldPolicy = "tools", "old"

// state is an object that a reason of Ready is to be seen on.
type state struct {
	kind, name, spec string
	reason           string
	kstatus          status.Status
	// argo is what Argo CD's health begins with: status, then message.
	argo, message string
}

// stateList are objects of all kinds in every state that a control plane without nodes can be brought to within seconds.
// The others are in controllers, TestToolsKnowEveryReason.
func stateList() []state {
	var out []state
	add := func(kind, name, spec, reason string, s status.Status, argo, message string) {
		out = append(out, state{kind, name, spec, reason, s, argo, message})
	}
	current := func(kind, name, spec, message string) {
		add(kind, name, spec, v1alpha1.ReasonAccepted, status.CurrentStatus, "Healthy", message)
	}
	waits := func(kind, name, reason, spec string) {
		add(kind, name, spec, reason, status.InProgressStatus, "Progressing", reason+": ")
	}
	fails := func(kind, name, reason, spec string) {
		add(kind, name, spec, reason, status.FailedStatus, "Degraded", reason+": ")
	}
	const endpoint, policy, pool = "WebhookEndpoint", "RetryPolicy", "DeliveryPool"
	const url = `url: "https://hooks.example.com/", `

	current(endpoint, "fine", "{"+url+"maxInFlight: 2}", "Accepted: ")
	current(endpoint, "suspended", "{"+url+"suspend: true}", "Suspended: ")
	waits(endpoint, "no-secret", v1alpha1.ReasonSecretNotFound, "{"+url+"signing: {keys: [{name: a, secretKeyRef: {name: late, key: key}}]}}")
	waits(endpoint, "no-bundle", v1alpha1.ReasonConfigMapNotFound, "{"+url+"tls: {caCertificateRefs: [{name: nowhere}]}}")
	waits(endpoint, "no-policy", v1alpha1.ReasonRetryPolicyNotFound, "{"+url+"retryPolicyRef: {name: nowhere}}")
	waits(endpoint, "no-service", v1alpha1.ReasonServiceNotFound, "{serviceRef: {name: nowhere}}")
	waits(endpoint, "no-pool", v1alpha1.ReasonPoolNotFound, "{"+url+"poolRef: {name: nowhere, namespace: tools}}")
	waits(endpoint, "idle-pool", v1alpha1.ReasonProgressing, "{"+url+"poolRef: {name: idle, namespace: tools}}")
	fails(endpoint, "not-admitted", v1alpha1.ReasonNamespaceNotAllowed, "{"+url+"poolRef: {name: closed, namespace: doorstep-system}}")
	fails(endpoint, "no-key", v1alpha1.ReasonSecretKeyMissing, "{"+url+"signing: {keys: [{name: a, secretKeyRef: {name: bad, key: nowhere}}]}}")
	fails(endpoint, "bad-key", v1alpha1.ReasonKeyInvalid, "{"+url+"signing: {keys: [{name: a, secretKeyRef: {name: bad, key: key}}]}}")
	fails(endpoint, "bad-filter", v1alpha1.ReasonFilterInvalid, "{"+url+`filter: "event.data.amount >="}`)
	fails(endpoint, "bad-bundle", v1alpha1.ReasonCertificateInvalid, "{"+url+"tls: {caCertificateRefs: [{name: bad}]}}")
	fails(endpoint, "bad-url", v1alpha1.ReasonURLInvalid, "{urlFrom: {secretKeyRef: {name: bad, key: url}}}")
	fails(endpoint, "bad-policy", v1alpha1.ReasonRetryPolicyInvalid, "{"+url+"retryPolicyRef: {name: old}}")
	fails(endpoint, "foreign", v1alpha1.ReasonRefNotPermitted, "{serviceRef: {name: default-ingest, namespace: doorstep-system}}")
	fails(endpoint, "headless", v1alpha1.ReasonServiceUnusable, "{serviceRef: {name: headless}}")
	fails(endpoint, "too-large", v1alpha1.ReasonPlanEntryTooLarge, "{"+url+"tls: {caCertificateRefs: [{name: huge}]}}")

	current(policy, "fine", "{}", "Accepted: ")
	fails(policy, oldPolicy, v1alpha1.ReasonRetryPolicyInvalid, "")

	waits(pool, "idle", v1alpha1.ReasonProgressing, "{}")
	waits(pool, "no-certificate", v1alpha1.ReasonSecretNotFound, "{ingest: {tls: {secretRef: {name: nowhere}}}}")
	fails(pool, "small", v1alpha1.ReasonVolumeNotExpandable, "{store: {type: Embedded, embedded: {size: 2Gi}}}")
	return out
}

// referred is what objects in those states refer to.
func referred(t *testing.T) string {
	certificate := strings.ReplaceAll(strings.TrimSpace(certificatePEM(t)), "\n", "\n    ")
	return `apiVersion: doorstep.dev/v1alpha1
kind: DeliveryPool
metadata: {name: closed, namespace: doorstep-system}
spec: {allowedNamespaces: {from: Same}}
---
apiVersion: v1
kind: Secret
metadata: {name: bad, namespace: tools}
stringData: {key: "no key at all", url: "ftp://hooks.example.com/"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: bad, namespace: tools}
data: {ca.crt: "no certificate at all"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: huge, namespace: tools}
data:
  ca.crt: |
` + strings.Repeat("    "+certificate+"\n", 100) + `---
apiVersion: v1
kind: Service
metadata: {name: headless, namespace: tools}
spec: {clusterIP: None, selector: {app: x}, ports: [{port: 80}]}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: queue-small-worker-0, namespace: tools, labels: {app.kubernetes.io/managed-by: doorstep, app.kubernetes.io/component: worker, doorstep.dev/pool: small}}
spec: {accessModes: [ReadWriteOnce], storageClassName: stiff, volumeName: pv, resources: {requests: {storage: 1Gi}}}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: stiff}
provisioner: example.com/x
`
}

// judged fails the test unless kstatus and Argo CD say this of an object as it was read.
func (s *site) judged(t *testing.T, u *unstructured.Unstructured, kstatus status.Status, argo, message string) {
	t.Helper()
	if got, err := KStatus(u); err != nil || got != kstatus {
		t.Errorf("kstatus says %s of %s %s, %v; want %s", got, u.GetKind(), u.GetName(), err, kstatus)
	}
	if got, err := ArgoHealth(u); err != nil || got.Status != argo || !strings.HasPrefix(got.Message, message) {
		t.Errorf("Argo CD says %+v of %s %s, %v; want %s, %q", got, u.GetKind(), u.GetName(), err, argo, message)
	}
}

// Objects are brought into every state there is. The tools that wait for objects say of each one what is so, and have never
// taken it for finished, or for failed, on its way there.
func states(t *testing.T, s *site) {
	history := s.watch(t)
	all := referred(t)
	list := stateList()
	for _, o := range list {
		if o.spec != "" {
			all += fmt.Sprintf("---\napiVersion: doorstep.dev/v1alpha1\nkind: %s\nmetadata: {name: %s, namespace: %s}\nspec: %s\n", o.kind, o.name, tools, o.spec)
		}
	}
	s.kubectl(t, all, "apply", serverSide, "-f", "-")
	s.bindClaim(t)
	for _, o := range list {
		u := object(o.kind, tools, o.name)
		ready := metav1.ConditionFalse
		if o.reason == v1alpha1.ReasonAccepted {
			ready = metav1.ConditionTrue
		}
		s.await(t, u, v1alpha1.ConditionReady, ready, o.reason)
		if o.kind == "WebhookEndpoint" && o.name == "suspended" {
			s.await(t, u, v1alpha1.ConditionDelivering, metav1.ConditionFalse, v1alpha1.ReasonSuspended)
		}
		s.judged(t, u, o.kstatus, o.argo, o.message)
	}

	// What waited goes on when what was missing comes, and what had failed when it is mended.
	s.kubectl(t, "apiVersion: v1\nkind: Secret\nmetadata: {name: late, namespace: tools}\nstringData: {key: whsec_oTsZLsC3r621tew5h3R+CNxfgEtDTLStoCLmKnW5A6Q=}\n", "apply", "-f", "-")
	mended := object("WebhookEndpoint", tools, "bad-filter")
	if err := s.Client.Patch(t.Context(), mended, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"filter":"event.data.amount >= 1"}}`))); err != nil {
		t.Fatal(err)
	}
	s.judged(t, mended, status.InProgressStatus, "Progressing", "Waiting for the manager") // as the API server answers the patch
	for _, name := range []string{"no-secret", "bad-filter"} {
		u := object("WebhookEndpoint", tools, name)
		s.await(t, u, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
		s.await(t, u, v1alpha1.ConditionDelivering, metav1.ConditionTrue, v1alpha1.ReasonActive)
		s.judged(t, u, status.CurrentStatus, "Healthy", "Accepted: ")
	}
	s.outlivesNewRules(t)

	for _, o := range list {
		want := []status.Status{status.InProgressStatus, o.kstatus}
		switch {
		case o.name == "bad-filter":
			want = []status.Status{status.InProgressStatus, status.FailedStatus, status.InProgressStatus, status.CurrentStatus}
		case o.name == oldPolicy: // it was there before the manager, and before anybody watched
			want = want[1:]
		case o.name == "no-secret":
			want = []status.Status{status.InProgressStatus, status.CurrentStatus}
		case o.name == "bad-policy": // whose policy is removed by outlivesNewRules
			want = []status.Status{status.InProgressStatus, status.FailedStatus, status.InProgressStatus}
		case o.kstatus == status.InProgressStatus:
			want = want[:1]
		}
		history.expect(t, o.kind+"/"+o.name, want)
	}
}

// history is what kstatus said of each object, one after the other.
type history struct {
	mu   sync.Mutex
	said map[string][]status.Status
}

// expect waits until that is what kstatus has said of an object.
func (h *history) expect(t *testing.T, key string, want []status.Status) {
	t.Helper()
	cluster.Eventually(t, 10*time.Second, "kstatus of "+key, func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if got := h.said[key]; !slices.Equal(got, want) {
			return fmt.Errorf("it said %v in turn, want %v", got, want)
		}
		return nil
	})
}

// watch begins to note what kstatus says of each state that an object of the namespace is ever seen in.
func (s *site) watch(t *testing.T) *history {
	t.Helper()
	c, err := client.NewWithWatch(s.Config(), client.Options{Scheme: cluster.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	h := &history{said: map[string][]status.Status{}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var watching sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		watching.Wait()
	})
	for _, kind := range kinds {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(v1alpha1.GroupVersion.String())
		list.SetKind(kind + "List")
		w, err := c.Watch(ctx, list, client.InNamespace(tools))
		if err != nil {
			t.Fatal(err)
		}
		watching.Go(func() {
			for event := range w.ResultChan() {
				if u, ok := event.Object.(*unstructured.Unstructured); ok && event.Type != "DELETED" {
					h.note(t, u)
				}
			}
		})
		watching.Go(func() {
			<-ctx.Done()
			w.Stop()
		})
	}
	return h
}

func (h *history) note(t *testing.T, u *unstructured.Unstructured) {
	says, err := KStatus(u)
	if err != nil {
		t.Error(err)
	}
	key := u.GetKind() + "/" + u.GetName()
	h.mu.Lock()
	defer h.mu.Unlock()
	if said := h.said[key]; len(said) == 0 || said[len(said)-1] != says {
		h.said[key] = append(said, says)
	}
}

// bindClaim makes the claim of pool small a bound one, which its class can't expand.
func (s *site) bindClaim(t *testing.T) {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	if err := s.Client.Get(t.Context(), types.NamespacedName{Namespace: tools, Name: v1alpha1.QueuePVCName("small", 0)}, claim); err != nil {
		t.Fatal(err)
	}
	claim.Status.Phase, claim.Status.Capacity = corev1.ClaimBound, claim.Spec.Resources.Requests
	if err := s.Client.Status().Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
}

// storeOldPolicy stores a RetryPolicy that a release without the rules of today would have taken: it has both kinds of
// back-off.
func (s *site) storeOldPolicy(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	if err := s.EnsureNamespace(ctx, tools, nil); err != nil {
		t.Fatal(err)
	}
	rules := func(change func(*apiextensionsv1.JSONSchemaProps)) {
		t.Helper()
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := s.Client.Get(ctx, types.NamespacedName{Name: "retrypolicies.doorstep.dev"}, definition); err != nil {
			t.Fatal(err)
		}
		change(definition.Spec.Versions[0].Schema.OpenAPIV3Schema)
		if err := s.Client.Update(ctx, definition); err != nil {
			t.Fatal(err)
		}
	}
	policy := func() *unstructured.Unstructured {
		u := object("RetryPolicy", tools, oldPolicy)
		u.Object["spec"] = map[string]any{"backoff": map[string]any{
			"schedule":    []any{"1s"},
			"exponential": map[string]any{"initial": "1s", "factor": int64(2), "max": "5s", "maxAttempts": int64(3)},
		}}
		return u
	}
	var former apiextensionsv1.JSONSchemaProps
	rules(func(schema *apiextensionsv1.JSONSchemaProps) {
		former = *schema.DeepCopy()
		spec := schema.Properties["spec"]
		backoff := spec.Properties["backoff"]
		backoff.XValidations = nil
		spec.Properties["backoff"] = backoff
		schema.Properties["spec"] = spec
	})
	cluster.Eventually(t, 30*time.Second, "an API server of an older release", func() error { return s.Client.Create(ctx, policy()) })
	rules(func(schema *apiextensionsv1.JSONSchemaProps) { *schema = former })
	cluster.Eventually(t, 30*time.Second, "an API server with the rules of today", func() error {
		u := policy()
		u.SetName("probe")
		if err := s.Client.Create(ctx, u, client.DryRunAll); !apierrors.IsInvalid(err) {
			return fmt.Errorf("a policy with both kinds of back-off is answered %v", err)
		}
		return nil
	})
}

// case CR169: an object that breaks a rule which came after it can be labelled and deleted while the manager speaks of it,
// and whoever refers to it is told.
func (s *site) outlivesNewRules(t *testing.T) {
	t.Helper()
	u := object("RetryPolicy", tools, oldPolicy)
	s.kubectl(t, "", "label", "-n", tools, "retrypolicy", oldPolicy, "team=shop")
	s.await(t, u, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonRetryPolicyInvalid)
	if u.GetLabels()["team"] != "shop" {
		t.Errorf("its labels are %v", u.GetLabels())
	}
	s.kubectl(t, "", "delete", "-n", tools, "retrypolicy", oldPolicy, "--timeout=20s")
	s.await(t, object("WebhookEndpoint", tools, "bad-policy"), v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonRetryPolicyNotFound)
}

// certificatePEM is a certificate of some authority.
func certificatePEM(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}
