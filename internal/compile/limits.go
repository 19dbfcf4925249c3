package compile

import (
	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

// limits fills in what a namespace and an endpoint may use.
func (f poolFields) limits(l v1alpha1.PoolLimits) plan.Limits {
	ns, ep := deref(l.PerNamespace), deref(l.PerEndpoint)
	return plan.Limits{
		// Unset is no limit, and stays 0.
		NamespaceEventsPerSecond: f.number("spec.limits.perNamespace.eventsPerSecond", ns.EventsPerSecond, 1, 1000000, 0),
		NamespaceWaitingPercent:  f.number("spec.limits.perNamespace.waitingBytesPercent", ns.WaitingBytesPercent, 1, 100, v1alpha1.DefaultNamespaceWaitingBytesPercent),
		EndpointWaitingPercent:   f.number("spec.limits.perEndpoint.waitingBytesPercent", ep.WaitingBytesPercent, 1, 100, v1alpha1.DefaultEndpointWaitingBytesPercent),
	}
}
