package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// name tells the store which namespaces the plan speaks of, so that one that was made anew
// inherits nothing. It gives the plan without endpoints of namespaces that are gone, and of
// those about which the store could not be told: what waits for them is held.
func (e *Engine) name(ctx context.Context, p *plan.Plan) *plan.Plan {
	unsure := map[string]bool{}
	told := plan.Endpoint{}
	for i := range p.Endpoints {
		k := &p.Endpoints[i]
		if k.Namespace == told.Namespace && k.NamespaceUID == told.NamespaceUID {
			continue // they are sorted
		}
		told.Namespace, told.NamespaceUID = k.Namespace, k.NamespaceUID
		if err := e.nameOne(ctx, k.Namespace, k.NamespaceUID); err != nil {
			e.Log.Error(err, "The store can't be told of a namespace; its endpoints are held until the next plan", "namespace", k.Namespace)
			unsure[k.Namespace] = true
		}
	}
	late := func(k *plan.Endpoint) bool {
		if unsure[k.Namespace] {
			return true
		}
		if k.NamespaceUID == "" {
			return false
		}
		what, _ := e.store.Naming(k.Namespace, k.NamespaceUID)
		return what == queue.FormerNamespace
	}
	if !slices.ContainsFunc(p.Endpoints, func(k plan.Endpoint) bool { return late(&k) }) &&
		!slices.ContainsFunc(p.Absent, func(a plan.Absence) bool { return late(&a.Endpoint) }) {
		return p
	}
	without := *p
	without.Endpoints = slices.DeleteFunc(slices.Clone(p.Endpoints), func(k plan.Endpoint) bool { return late(&k) })
	without.Absent = slices.DeleteFunc(slices.Clone(p.Absent), func(a plan.Absence) bool { return late(&a.Endpoint) })
	return &without
}

// tellAgain is how soon a store that could not take it is told again.
const tellAgain = time.Second

// nameOne tells the store of one namespace, however long that takes.
func (e *Engine) nameOne(ctx context.Context, name, uid string) error {
	what, noted := e.store.Naming(name, uid)
	if noted || uid == "" {
		return nil
	}
	if what == queue.NewNamespace {
		e.Log.Info("A namespace was deleted and made anew: nothing of the former one is shown or sent any more, and what waits of it is dead-lettered",
			"namespace", name, "reason", queue.ReasonEndpointDeleted)
		former := slices.DeleteFunc(e.store.Endpoints(), func(k plan.EndpointKey) bool { return k.Namespace != name })
		e.lanes.Forget(name)
		defer func() {
			e.lanes.Forget(name)
			if e.Health == nil {
				return
			}
			for _, k := range former {
				e.Health.Forget(k)
			}
		}()
	}
	for {
		_, err := e.store.Namespace(ctx, name, uid)
		if !errors.Is(err, queue.ErrOverloaded) {
			return err
		}
		pause(ctx, tellAgain)
	}
}
