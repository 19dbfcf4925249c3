package v1alpha1_test

import "testing"

func TestPoolWorkloadRules(t *testing.T) {
	const selector = "spec.allowedNamespaces: selector must be set with from Selector, and with no other"
	const ours = "spec.template.labels: labels of doorstep.dev/ and app.kubernetes.io/ are set by Doorstep; remove them"
	below := func(path, least string) []string {
		return []string{path + ": " + path + " in body should be greater than or equal to " + least}
	}
	checkRules(t, "DeliveryPool", []rule{
		{"everything set", `store: {type: Embedded, embedded: {size: 20Gi, storageClassName: fast, accessMode: ReadWriteOncePod}}
replicas: 1
allowedNamespaces: {from: Selector, selector: {matchLabels: {team: shop}}}
updatePolicy: OnRequest
networkPolicy: None
monitoring: {labels: {release: prometheus}, interval: 30s}
ingest: {tls: {secretRef: {name: ingest-tls}}, service: {type: LoadBalancer, annotations: {a: b}, ipFamilyPolicy: PreferDualStack}}
template:
  labels: {team: platform}
  annotations: {a: b}
  resources: {requests: {cpu: 100m}, limits: {memory: 1Gi}}
  nodeSelector: {disk: ssd}
  tolerations: [{key: queue, operator: Exists}]
  affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: disk, operator: Exists}]}]}}}
  topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]
  priorityClassName: high
  imagePullSecrets: [{name: registry}]
  podSecurityContext: {runAsUser: 1000, runAsGroup: 1000, fsGroup: 1000, supplementalGroups: [1001]}`, nil},

		{"a store of another type", "store: {type: Redis}", []string{`spec.store.type: supported values: "Embedded"`}},
		{"a store without type", "store: {embedded: {size: 20Gi}}", []string{"spec.store.type: Required value"}},
		{"least size", "store: {type: Embedded, embedded: {size: 1Gi}}", nil},
		{"least size in bytes", "store: {type: Embedded, embedded: {size: 1073741824}}", nil},
		{"too small", "store: {type: Embedded, embedded: {size: 512Mi}}", []string{"spec.store.embedded.size: size must be at least 1Gi"}},
		{"another access mode", "store: {type: Embedded, embedded: {accessMode: ReadWriteMany}}", []string{"spec.store.embedded.accessMode: supported values"}},
		{"a class that is no name", "store: {type: Embedded, embedded: {storageClassName: Fast}}", []string{"spec.store.embedded.storageClassName: spec.store.embedded.storageClassName in body should match"}},

		{"two replicas", "replicas: 2", []string{"spec.replicas: replicas must be 1: an embedded store serves one worker; for more throughput make another DeliveryPool"}},
		{"no replicas", "replicas: 0", append(below("spec.replicas", "1"), "spec.replicas: replicas must be 1")},

		{"all namespaces", "allowedNamespaces: {from: All}", nil},
		{"a selector with All", "allowedNamespaces: {from: All, selector: {}}", []string{selector}},
		{"no selector", "allowedNamespaces: {from: Selector}", []string{selector}},
		{"another word for namespaces", "allowedNamespaces: {from: Some}", []string{`spec.allowedNamespaces.from: supported values: "All", "Same", "Selector"`}},

		{"another update policy", "updatePolicy: Never", []string{"spec.updatePolicy: supported values"}},
		{"another network policy", "networkPolicy: Open", []string{"spec.networkPolicy: supported values"}},
		{"too often", "monitoring: {interval: 100ms}", []string{"spec.monitoring.interval: interval must be at least 1s"}},
		{"a service of another type", "ingest: {service: {type: ExternalName}}", []string{"spec.ingest.service.type: supported values"}},

		{"a label of ours", "template: {labels: {doorstep.dev/pool: other}}", []string{ours}},
		{"a label of the application", "template: {labels: {app.kubernetes.io/name: other}}", []string{ours}},
		{"root", "template: {podSecurityContext: {runAsUser: 0}}", below("spec.template.podSecurityContext.runAsUser", "1")},
	})
}

func TestPoolName(t *testing.T) {
	check(t, object(t, "DeliveryPool", "a.b", "{}"), nil,
		[]string{"<nil>: metadata.name must not contain a dot, since Services are named after it; use dashes"})
}

// case CR162: what a volume can't do is refused in words, however it is written.
func TestStoreChanges(t *testing.T) {
	embedded := func(fields string) string { return "store: {type: Embedded, embedded: {" + fields + "}}" }
	shrinks := []string{"spec: store.embedded.size can't be made smaller (unset, it is 10Gi), since volumes can't shrink"}
	class := []string{"spec: store.embedded.storageClassName can't be changed, added or removed"}
	mode := []string{"spec: store.embedded.accessMode can't be changed"}
	for _, row := range []struct {
		name     string
		old, new string
		want     []string
	}{
		{"grows", embedded("size: 1Gi"), embedded("size: 2Gi"), nil},
		{"grows from text to bytes", embedded("size: 1Gi"), embedded("size: 2147483648"), nil},
		{"grows from bytes to text", embedded("size: 1073741824"), embedded("size: 2Gi"), nil},
		{"the same in other words", embedded("size: 2Gi"), embedded("size: 2048Mi"), nil},
		{"shrinks", embedded("size: 2Gi"), embedded("size: 1Gi"), shrinks},
		{"shrinks from bytes", embedded("size: 2147483648"), embedded("size: 1Gi"), shrinks},
		{"grows from the default", "{}", embedded("size: 11Gi"), nil},
		{"the default written out", "{}", embedded("size: 10Gi, accessMode: ReadWriteOnce"), nil},
		{"shrinks from the default", "{}", embedded("size: 9Gi"), shrinks},
		{"the store is removed", embedded("size: 20Gi"), "{}", shrinks},
		{"the size is removed", embedded("size: 20Gi"), embedded("accessMode: ReadWriteOnce"), shrinks},
		{"the class changes", embedded("storageClassName: fast"), embedded("storageClassName: slow"), class},
		{"the class is added", "{}", embedded("storageClassName: slow"), class},
		{"the class is removed", embedded("storageClassName: fast"), "store: {type: Embedded}", class},
		{"the mode changes", embedded("accessMode: ReadWriteOnce"), embedded("accessMode: ReadWriteOncePod"), mode},
		{"the mode is added", "{}", embedded("accessMode: ReadWriteOncePod"), mode},
	} {
		t.Run(row.name, func(t *testing.T) {
			check(t, object(t, "DeliveryPool", "default", row.new), object(t, "DeliveryPool", "default", row.old), row.want)
		})
	}
}
