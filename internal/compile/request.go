package compile

import "github.com/doorstep-dev/doorstep/internal/plan"

func (r *resolver) dataOnly() bool { return false }

func (r *resolver) headers() []plan.Header { return nil }

func (r *resolver) auth() *plan.Auth { return nil }

func (r *resolver) tls() plan.TLS { return plan.TLS{} }
