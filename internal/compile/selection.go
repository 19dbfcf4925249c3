package compile

import "github.com/doorstep-dev/doorstep/internal/plan"

func (r *resolver) matchAttributes() []plan.Attribute { return nil }

func (r *resolver) filter() string { return "" }
