// Package cluster runs a Kubernetes control plane for tests: a real kube-apiserver with etcd on 127.0.0.1, with RBAC,
// admission policies and audit, and beside it what tests need of a cluster: kubeconfigs, kubectl, tokens of
// ServiceAccounts, a record of every request, and an API server that goes away and comes back.
//
// There is no kubelet, no scheduler and no controller-manager: Pods do not run, StatefulSets make no Pods, a deleted
// namespace stays, owners' objects are not collected and aggregated ClusterRoles stay empty. A Pool plays those parts for
// one DeliveryPool: it runs the workers that the manager asks for, as real processes.
//
// The programs come from the folder that KUBEBUILDER_ASSETS names, which hack/envtest.sh prints; a test without it fails
// and says so. Whatever is started here ends with the test program, also when that is killed, and nothing is ended that
// was not started here.
package cluster
