package egress

// DeniedError says that a destination may not be dialled: by its name, its address or
// its port.
type DeniedError struct {
	// Range is what the destination is, such as "private", and Remedy the way out. Both
	// are for whoever wrote the URL, before anything was resolved, and for the operator's
	// log: told of an answer of DNS they would map the network. Neither holds an address.
	Range, Remedy string
}

// Error is the same for every destination.
func (*DeniedError) Error() string { return "destination not allowed" }

// The ways out.
const (
	remedyEntry    = "open its network with an entry of spec.egress.allow of the DeliveryPool"
	remedyLoopback = "open it with an entry 127.0.0.0/8 or ::1/128 of spec.egress.allow of the DeliveryPool"
	remedyPort     = "use another port, or name this one in ports of an entry of spec.egress.allow of the DeliveryPool"
	remedyDenied   = "use another destination, or remove the entry of spec.egress.deny of the DeliveryPool"
	remedyFullName = "write the full name of the Service, which ends in .svc.cluster.local or the cluster's own domain"
	remedyNone     = "no setting opens it: use another destination"
)
