package controllers

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
)

// What a pool says of itself, by what is seen of it. Each row names a part of the message.
func TestPoolVerdict(t *testing.T) {
	pending := func(class *string) func(*poolInputs) {
		return func(in *poolInputs) {
			in.claim = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "queue-p-worker-0"}}
			in.claim.Spec.StorageClassName, in.claim.Status.Phase = class, corev1.ClaimPending
		}
	}
	live := func(in *poolInputs) { in.state.Live = []string{"p-worker-0"} }
	silent := func(in *poolInputs) { in.state.Unavailable = true }
	overdue := func(in *poolInputs) { in.state.Unavailable, in.state.Overdue = true, true }
	because := func(c cause) func(*poolInputs) { return func(in *poolInputs) { in.cause = c } }
	before := func(status metav1.ConditionStatus, reason string) func(*poolInputs) {
		return func(in *poolInputs) {
			in.pool.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: status, Reason: reason}}
		}
	}
	crash := cause{what: "CrashLoopBackOff, exit code 1", wayOut: "see its log", failed: true}
	for name, row := range map[string]struct {
		age    time.Duration
		in     []func(*poolInputs)
		reason string
		says   string
		wait   time.Duration
	}{
		"fresh":                      {time.Second, nil, v1alpha1.ReasonProgressing, "first worker", 0},
		"fresh, the volume pends":    {time.Second, []func(*poolInputs){pending(nil)}, v1alpha1.ReasonProgressing, "volume", 59 * time.Second},
		"no default class":           {time.Minute, []func(*poolInputs){pending(nil)}, v1alpha1.ReasonVolumePending, "no default StorageClass", causeInterval},
		"no such class":              {time.Minute, []func(*poolInputs){pending(pointer("fast"))}, v1alpha1.ReasonVolumePending, "StorageClass fast does not exist", causeInterval},
		"a class without volumes":    {time.Minute, []func(*poolInputs){pending(pointer("fast")), withClass}, v1alpha1.ReasonVolumePending, "provisioner made no volume", causeInterval},
		"no class, and no volume":    {time.Minute, []func(*poolInputs){pending(pointer(""))}, v1alpha1.ReasonVolumePending, "without class", causeInterval},
		"no node for the volume":     {time.Minute, []func(*poolInputs){pending(pointer("fast")), withClass, silent, because(cause{what: "Unschedulable", wayOut: "look at nodes"})}, v1alpha1.ReasonVolumePending, "look at nodes", causeInterval},
		"the volume pends, works on": {time.Hour, []func(*poolInputs){pending(nil), live}, v1alpha1.ReasonAccepted, "", 0},
		"silent at first":            {90 * time.Second, []func(*poolInputs){silent}, v1alpha1.ReasonProgressing, "first worker", 30 * time.Second},
		"silent":                     {2 * time.Minute, []func(*poolInputs){silent}, v1alpha1.ReasonWorkerUnavailable, "kubectl describe pod p-worker-0", causeInterval},
		// case GO185
		"silent, and it crashes":      {2 * time.Minute, []func(*poolInputs){silent, because(crash)}, v1alpha1.ReasonWorkerUnavailable, "exit code 1", causeInterval},
		"overdue, and it crashes":     {6 * time.Minute, []func(*poolInputs){overdue, because(crash)}, v1alpha1.ReasonWorkerFailed, "exit code 1): see its log", causeInterval},
		"overdue without a cause":     {6 * time.Minute, []func(*poolInputs){overdue}, v1alpha1.ReasonWorkerUnavailable, "kubectl describe pod", causeInterval},
		"overdue, it may pass":        {6 * time.Minute, []func(*poolInputs){overdue, because(cause{what: "ContainerCreating", wayOut: "wait"})}, v1alpha1.ReasonWorkerUnavailable, "ContainerCreating", causeInterval},
		"the manager restarted":       {time.Hour, []func(*poolInputs){silent, because(crash), before(metav1.ConditionFalse, v1alpha1.ReasonWorkerFailed)}, v1alpha1.ReasonWorkerFailed, "exit code 1", causeInterval},
		"the crash is mended":         {time.Hour, []func(*poolInputs){silent, before(metav1.ConditionFalse, v1alpha1.ReasonWorkerFailed)}, v1alpha1.ReasonWorkerUnavailable, "its log", causeInterval},
		"a new image doesn't come up": {time.Hour, []func(*poolInputs){overdue, because(crash), stuck}, v1alpha1.ReasonWorkerFailed, "the update to the image v2 has not come to an end for 10m, and other pools go on", causeInterval},
		"a new image, the old works":  {time.Hour, []func(*poolInputs){live, stuck}, v1alpha1.ReasonUpdateStuck, "v2", 0},
		"a new image, under way":      {time.Hour, []func(*poolInputs){live, func(in *poolInputs) { in.stuckIn = time.Minute }}, v1alpha1.ReasonAccepted, "", time.Minute},
		"a foreign object":            {time.Hour, []func(*poolInputs){live, failing(&nameTaken{"Service", types.NamespacedName{Namespace: "shop", Name: "p-ingest"}})}, v1alpha1.ReasonNameTaken, "Service shop/p-ingest exists and is not Doorstep's", 0},
		"a refusal":                   {time.Hour, []func(*poolInputs){live, failing(errors.New("no"))}, v1alpha1.ReasonObjectsFailed, "no", 0},
		"a conflict":                  {time.Hour, []func(*poolInputs){live, failing(apierrors.NewConflict(schema.GroupResource{}, "x", errors.New("again")))}, v1alpha1.ReasonAccepted, "", 0},
		"it can't grow":               {time.Hour, []func(*poolInputs){live, func(in *poolInputs) { in.notGrowing = pointer(notReady(v1alpha1.ReasonQuotaExceeded, "quota")) }}, v1alpha1.ReasonQuotaExceeded, "quota", growInterval},
		"it can't grow and is silent": {time.Hour, []func(*poolInputs){silent, func(in *poolInputs) { in.notGrowing = pointer(notReady(v1alpha1.ReasonQuotaExceeded, "quota")) }}, v1alpha1.ReasonWorkerUnavailable, "", causeInterval},
		"its file system is to grow":  {time.Hour, []func(*poolInputs){live, resizing(corev1.PersistentVolumeClaimFileSystemResizePending)}, v1alpha1.ReasonAccepted, "FileSystemResizePending", 0},
		"its volume is growing":       {time.Hour, []func(*poolInputs){live, resizing(corev1.PersistentVolumeClaimResizing)}, v1alpha1.ReasonAccepted, "being made larger", 0},
		"its volume fails to grow":    {time.Hour, []func(*poolInputs){live, resizing(corev1.PersistentVolumeClaimControllerResizeError)}, v1alpha1.ReasonAccepted, "is tried again", 0},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
			in := &poolInputs{pool: &v1alpha1.DeliveryPool{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p", CreationTimestamp: metav1.NewTime(start)}}, now: start.Add(row.age)}
			for _, f := range row.in {
				f(in)
			}
			v, wait := in.verdict()
			if v.reason != row.reason || !strings.Contains(v.message, row.says) || wait != row.wait {
				t.Errorf("it says %s, look again in %v; want %s with %q, %v", v, wait, row.reason, row.says, row.wait)
			}
		})
	}
}

func withClass(in *poolInputs) { in.class = &storagev1.StorageClass{} }

func stuck(in *poolInputs) { in.stuckOn = "v2" }

func failing(err error) func(*poolInputs) { return func(in *poolInputs) { in.failed = err } }

func resizing(kind corev1.PersistentVolumeClaimConditionType) func(*poolInputs) {
	return func(in *poolInputs) {
		in.claim = &corev1.PersistentVolumeClaim{}
		in.claim.Status.Phase = corev1.ClaimBound
		in.claim.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: kind, Status: corev1.ConditionTrue}}
	}
}

// case GO185: what a pod's status comes to, in words that are the same at each try.
func TestPodCause(t *testing.T) {
	waiting := func(reason string) corev1.ContainerStatus {
		return corev1.ContainerStatus{Image: "registry.example.com/x:1", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}
	}
	ended := &corev1.ContainerStateTerminated{ExitCode: 3, Reason: "Error"}
	last := corev1.ContainerState{Terminated: ended}
	backOff := waiting("CrashLoopBackOff")
	backOff.LastTerminationState = last
	oom := waiting("CrashLoopBackOff")
	oom.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	const crash = "CrashLoopBackOff, exit code 3"
	for name, row := range map[string]struct {
		status corev1.ContainerStatus
		what   string
		says   string
		failed bool
	}{
		"pulling fails":             {waiting("ErrImagePull"), "ImagePullBackOff", "registry.example.com/x:1", true},
		"pulling waits":             {waiting("ImagePullBackOff"), "ImagePullBackOff", "template.imagePullSecrets", true},
		"no image's name":           {waiting("InvalidImageName"), "InvalidImageName", "DOORSTEP_IMAGE", true},
		"a Secret is missing":       {waiting("CreateContainerConfigError"), "CreateContainerConfigError", "kubectl describe pod p-worker-0", true},
		"it waits to start again":   {backOff, crash, "--previous", true},
		"it has just ended":         {corev1.ContainerStatus{State: last}, crash, "--previous", true},
		"it has just started again": {corev1.ContainerStatus{State: running, LastTerminationState: last}, crash, "--previous", true},
		"out of memory":             {oom, "OOMKilled", "limits.memory", true},
		"ended, and runs well":      {corev1.ContainerStatus{State: running, Ready: true, LastTerminationState: last}, "", "", false},
		"runs":                      {corev1.ContainerStatus{State: running}, "", "", false},
		"is being made":             {waiting("ContainerCreating"), "ContainerCreating", "volume", false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p-worker-0"}, Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{row.status}}}
			if c := podCause(pod); c.what != row.what || !strings.Contains(c.wayOut, row.says) || c.failed != row.failed {
				t.Errorf("the cause is %+v", c)
			}
		})
	}
	pod := &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/3 nodes"}}}}
	if c := podCause(pod); c.what != "Unschedulable" || !c.failed || strings.Contains(c.wayOut, "0/3") {
		t.Errorf("without a node the cause is %+v", c)
	}
	pod.DeletionTimestamp = &metav1.Time{}
	if c := podCause(pod); c.failed || !strings.Contains(c.wayOut, "out-of-service") {
		t.Errorf("of a pod that is being deleted the cause is %+v", c)
	}
}

// Why a larger claim is refused. case CR162
func TestWhyAVolumeCantGrow(t *testing.T) {
	yes := true
	classes := map[string]*storagev1.StorageClass{
		"fixed": {ObjectMeta: metav1.ObjectMeta{Name: "fixed"}}, "growing": {ObjectMeta: metav1.ObjectMeta{Name: "growing"}, AllowVolumeExpansion: &yes},
	}
	claims := schema.GroupResource{Resource: "persistentvolumeclaims"}
	forbidden := func(why string) error { return apierrors.NewForbidden(claims, "queue-p-worker-0", errors.New(why)) }
	const admission = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
	for name, row := range map[string]struct {
		class  string
		err    error
		reason string
		says   string
	}{
		"the class":            {"fixed", forbidden(admission), v1alpha1.ReasonVolumeNotExpandable, "StorageClass fixed does not have allowVolumeExpansion"},
		"no class":             {"", forbidden(admission), v1alpha1.ReasonVolumeNotExpandable, "has no storage class"},
		"a class that is gone": {"gone", forbidden(admission), v1alpha1.ReasonVolumeNotExpandable, "has no storage class"},
		"a quota":              {"growing", forbidden("exceeded quota: storage, requested: requests.storage=2Gi"), v1alpha1.ReasonQuotaExceeded, "raise the ResourceQuota"},
		"a policy":             {"growing", forbidden("admission webhook \"x\" denied the request: too large"), v1alpha1.ReasonVolumeNotExpandable, "too large"},
		"rights":               {"growing", forbidden(`User "x" cannot patch resource "persistentvolumeclaims" in API group ""`), "", "ClusterRole"},
	} {
		t.Run(name, func(t *testing.T) {
			claim := &corev1.PersistentVolumeClaim{}
			claim.Spec.StorageClassName = &row.class
			find := func(_ context.Context, name string) (*storagev1.StorageClass, error) { return classes[name], nil }
			v, err := whyRefused(t.Context(), find, claim, row.err)
			switch {
			case row.reason == "":
				if v != nil || err == nil || !strings.Contains(err.Error(), row.says) {
					t.Errorf("it says %v and fails with %v", v, err)
				}
			case err != nil || v == nil || v.reason != row.reason || !strings.Contains(v.message, row.says):
				t.Errorf("it says %v (%v), want %s with %q", v, err, row.reason, row.says)
			}
		})
	}
	claim := &corev1.PersistentVolumeClaim{}
	if v := infeasible(claim); v != nil {
		t.Errorf("of a volume that is as large as asked it says %v", v)
	}
	claim.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: corev1.PersistentVolumeClaimNodeResizeInfeasible}
	if v := infeasible(claim); v == nil || v.reason != v1alpha1.ReasonVolumeNotExpandable {
		t.Errorf("of a volume that can't be as large as asked it says %v", v)
	}
}

func TestCertificateOfIngest(t *testing.T) {
	cert, key := pair(t)
	other, _ := pair(t)
	for name, row := range map[string]struct {
		kind      corev1.SecretType
		cert, key string
		reason    string
		says      string
	}{
		"a pair":                 {corev1.SecretTypeTLS, cert, key, "", ""},
		"a pair of another type": {corev1.SecretTypeOpaque, cert, key, "", ""},
		"of a wrong type":        {corev1.SecretTypeOpaque, "", "", v1alpha1.ReasonSecretKeyMissing, "is of type Opaque, not kubernetes.io/tls, and lacks tls.crt"},
		"no key":                 {corev1.SecretTypeTLS, cert, "", v1alpha1.ReasonSecretKeyMissing, "lacks tls.key"},
		"halves of two":          {corev1.SecretTypeTLS, other, key, v1alpha1.ReasonCertificateInvalid, "no certificate with its key"},
		"no PEM":                 {corev1.SecretTypeTLS, "x", "y", v1alpha1.ReasonCertificateInvalid, "PEM"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "ingest"}, Type: row.kind, Data: map[string][]byte{"tls.crt": []byte(row.cert), "tls.key": []byte(row.key)}}
			v := certificateFault(s)
			switch {
			case row.reason == "" && v == nil:
			case v == nil || v.reason != row.reason || !strings.Contains(v.message, row.says):
				t.Errorf("it says %v, want %s with %q", v, row.reason, row.says)
			}
		})
	}
}

// pair makes a certificate and its key, in PEM.
func pair(t *testing.T) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	c, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// A worker's update counts as under way by what Kubernetes says of its revisions.
func TestSettled(t *testing.T) {
	s := setOf("a", "v2", 1)
	s.Generation, s.Status.ObservedGeneration = 2, 2
	if !settled(&s) {
		t.Error("a ready worker isn't settled")
	}
	for name, change := range map[string]func(*appsv1.StatefulSet){
		"not seen":    func(s *appsv1.StatefulSet) { s.Status.ObservedGeneration = 1 },
		"not updated": func(s *appsv1.StatefulSet) { s.Status.UpdatedReplicas = 0 },
		"not ready":   func(s *appsv1.StatefulSet) { s.Status.ReadyReplicas = 0 },
	} {
		c := *s.DeepCopy()
		if change(&c); settled(&c) {
			t.Errorf("%s: it is settled", name)
		}
	}
}
