package controllers

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
)

// cause is why a worker does not run, as Kubernetes tells. Its words are the same for as
// long as the cause is: a container that crashes again and again is not told of each time.
type cause struct {
	// what names it: a reason of Kubernetes's, and for a program that ended its exit code.
	what string
	// wayOut is what to do.
	wayOut string
	// failed: nothing tells that it will pass by itself.
	failed bool
}

func (c cause) known() bool { return c.what != "" }

// causeInterval is how soon it is looked again why a worker does not run: pods are not
// watched.
const causeInterval = 30 * time.Second

// whyNotRunning gives the cause why a pool's worker isn't there, if Kubernetes gives one.
func (r *PoolReconciler) whyNotRunning(ctx context.Context, p *v1alpha1.DeliveryPool) (cause, error) {
	var pod corev1.Pod
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: p.Namespace, Name: v1alpha1.WorkerPodName(p.Name, 0)}, &pod)
	if apierrors.IsNotFound(err) {
		return cause{"it has no pod", "see the events of kubectl describe statefulset " + v1alpha1.WorkerName(p.Name) +
			" for what keeps Kubernetes from making one, such as a quota or an admission policy", true}, nil
	}
	return podCause(&pod), client.IgnoreNotFound(err)
}

// podCause is why a pod's container does not run.
func podCause(pod *corev1.Pod) cause {
	if pod.DeletionTimestamp != nil {
		return cause{what: "its pod is being deleted", wayOut: "if its node is gone for good, taint it node.kubernetes.io/out-of-service, so that the volume can be used elsewhere"}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return cause{c.Reason, "kubectl describe pod " + pod.Name + " says what each node lacks: look at template.nodeSelector, tolerations and resources, and at where the volume is", c.Reason == corev1.PodReasonUnschedulable}
		}
	}
	for i := range pod.Status.ContainerStatuses {
		if c := containerCause(pod.Name, &pod.Status.ContainerStatuses[i]); c.known() {
			return c
		}
	}
	return cause{}
}

func containerCause(pod string, s *corev1.ContainerStatus) cause {
	describe := "see kubectl describe pod " + pod
	if w := s.State.Waiting; w != nil {
		switch w.Reason {
		case "", "CrashLoopBackOff": // below: how it ended
		case "ErrImagePull", "ImagePullBackOff": // the two alternate
			return cause{"ImagePullBackOff", "the image " + s.Image + " can't be had: mend the manager's image (workers run the same) or DOORSTEP_IMAGE, or name the registry's credentials in template.imagePullSecrets", true}
		case "InvalidImageName", "ErrImageNeverPull":
			return cause{w.Reason, "mend the manager's image (workers run the same) or DOORSTEP_IMAGE", true}
		case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
			return cause{w.Reason, describe, true}
		default: // ContainerCreating, PodInitializing: mostly a volume that is not attached yet
			return cause{w.Reason, describe + ": mostly a volume that can't be attached yet", false}
		}
	}
	ended := s.State.Terminated
	if ended == nil && !(s.State.Running != nil && s.Ready) {
		ended = s.LastTerminationState.Terminated
	}
	switch {
	case ended != nil && ended.Reason == "OOMKilled":
		return cause{"OOMKilled", "it needs more memory than it may take: raise template.resources.limits.memory", true}
	case ended != nil:
		return cause{fmt.Sprintf("CrashLoopBackOff, exit code %d", ended.ExitCode), "kubectl logs " + pod + " --previous says why it ended", true}
	case s.State.Waiting != nil && s.State.Waiting.Reason != "":
		return cause{s.State.Waiting.Reason, "kubectl logs " + pod + " --previous says why it ended", true}
	}
	return cause{}
}

// aboutWorker says of a worker that is not there how bad that is: the first one may take its
// time, and one that is silent may be on its way back. Where Kubernetes gives a cause that
// does not pass by itself, the pool has failed after a while, until somebody mends it.
func (in *poolInputs) aboutWorker() (verdict, time.Duration, bool) {
	age := in.now.Sub(in.pool.CreationTimestamp.Time)
	switch {
	case len(in.state.Live) > 0 || !in.state.Unavailable:
		return verdict{}, 0, false
	case age < startDeadline && !in.wasReady():
		return verdict{}, startDeadline - age, false
	}
	message := "No worker was heard of for a minute"
	if in.cause.known() {
		message += " (" + in.cause.what + "): " + in.cause.wayOut
	} else {
		message += ": see kubectl describe pod " + v1alpha1.WorkerPodName(in.pool.Name, 0) + " and its log"
	}
	message += in.stuckNote() + ". What it accepted is on its volume"
	if in.cause.failed && (in.state.Overdue || in.said(v1alpha1.ReasonWorkerFailed)) {
		return notReady(v1alpha1.ReasonWorkerFailed, message), causeInterval, true
	}
	return notReady(v1alpha1.ReasonWorkerUnavailable, message), causeInterval, true
}

// stuckNote tells of an update to a new image that does not come to an end.
func (in *poolInputs) stuckNote() string {
	if in.stuckOn == "" {
		return ""
	}
	return "; the update to the image " + in.stuckOn + " has not come to an end for " + string(text(rolloutDeadline)) + ", and other pools go on with theirs"
}

// said reports whether the status gives that reason for Ready.
func (in *poolInputs) said(reason string) bool {
	c := meta.FindStatusCondition(in.pool.Status.Conditions, v1alpha1.ConditionReady)
	return c != nil && c.Reason == reason
}
