package compile

import "github.com/doorstep-dev/doorstep/internal/plan"

func (r *resolver) rateLimit() *plan.RateLimit { return nil }

func (r *resolver) ordering() string { return "" }
