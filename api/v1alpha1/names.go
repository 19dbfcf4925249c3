package v1alpha1

import (
	"fmt"
	"strconv"
	"strings"
)

// The owners of fields, as server-side apply notes them. Each writes only its own entries.
const (
	// FieldOwnerManager owns what the manager writes: the objects of a pool, and observedGeneration, Ready, Reconciling,
	// Stalled and what is resolved of a status.
	FieldOwnerManager = "doorstep-manager"
	// FieldOwnerWorker owns what workers write: Delivering, Healthy, health and deliveries of an endpoint, and
	// StorePressure, store and queue of a pool.
	FieldOwnerWorker = "doorstep-worker"
)

// Labels and annotations.
const (
	// LabelManagedBy is on every object that the manager makes, with the value ManagedBy.
	LabelManagedBy = "app.kubernetes.io/managed-by"
	// LabelName is on every object of an installation, with the value AppName.
	LabelName = "app.kubernetes.io/name"
	// LabelComponent tells workers from the manager.
	LabelComponent = "app.kubernetes.io/component"
	// LabelPool is the name of the DeliveryPool that an object belongs to.
	LabelPool = "doorstep.dev/pool"
	// LabelEndpoint is the name of the WebhookEndpoint that a signing Secret was generated for.
	LabelEndpoint = "doorstep.dev/endpoint"
	// AnnotationRestartRequestedAt on a DeliveryPool restarts its workers, and with updatePolicy OnRequest gives them the
	// manager's image, each time its text changes.
	AnnotationRestartRequestedAt = "doorstep.dev/restart-requested-at"
	// AnnotationImage on a StatefulSet is the image that the manager gave the workers. What its template says may be
	// somebody else's.
	AnnotationImage = "doorstep.dev/image"

	// ManagedBy is the value of LabelManagedBy, AppName that of LabelName, ComponentWorker and ComponentManager those of
	// LabelComponent.
	ManagedBy        = "doorstep"
	AppName          = "doorstep"
	ComponentWorker  = "worker"
	ComponentManager = "manager"
)

// TokenAudience is the audience of the tokens that ServiceAccounts show to ingest.
const TokenAudience = "doorstep"

// WorkerClusterRole is the ClusterRole, shipped with the installation, of what a worker may do beside its pool's namespace.
const WorkerClusterRole = "doorstep-worker"

// PlanShards is how many Secrets beside the index hold a pool's plan.
const PlanShards = 64

// The objects of a DeliveryPool, all in its namespace.

// WorkerName is the StatefulSet, the ServiceAccount, the Role, the RoleBinding and the NetworkPolicy of a pool's workers.
func WorkerName(pool string) string { return pool + "-worker" }

// WorkerPodName is a worker's Pod, and the Lease that it renews.
func WorkerPodName(pool string, ordinal int) string {
	return WorkerName(pool) + "-" + strconv.Itoa(ordinal)
}

// IngestServiceName is the Service that events are posted to.
func IngestServiceName(pool string) string { return pool + "-ingest" }

// WorkersServiceName is the headless Service that gives workers their names.
func WorkersServiceName(pool string) string { return pool + "-workers" }

// QueueClaimName is the volume claim template of a pool's store.
const QueueClaimName = "queue"

// QueuePVCName is the PersistentVolumeClaim of one worker's store.
func QueuePVCName(pool string, ordinal int) string {
	return QueueClaimName + "-" + WorkerPodName(pool, ordinal)
}

// PlanIndexName is the Secret with the index of a pool's plan.
func PlanIndexName(pool string) string { return pool + "-plan" }

// PlanShardName is the Secret with one shard, 0 to PlanShards-1, of a pool's plan.
func PlanShardName(pool string, shard int) string { return fmt.Sprintf("%s-plan-%02d", pool, shard) }

// PoolOfPlan is the pool whose plan a Secret of that name holds, or a shard of it; false for any other name.
func PoolOfPlan(secret string) (pool string, ok bool) {
	if pool, ok = strings.CutSuffix(secret, PlanIndexName("")); ok {
		return pool, pool != ""
	}
	for shard := range PlanShards {
		if pool, ok = strings.CutSuffix(secret, PlanShardName("", shard)); ok {
			return pool, pool != ""
		}
	}
	return "", false
}

// PlanAcksName is the ConfigMap in which workers acknowledge the plan's versions: an entry of each Pod.
func PlanAcksName(pool string) string { return pool + "-plan-acks" }

// PlanSecretKey is the key that holds its bytes within each Secret of the plan.
const PlanSecretKey = "plan"

// PlanSecretType is the type of the Secrets of the plan.
const PlanSecretType = "doorstep.dev/plan"
