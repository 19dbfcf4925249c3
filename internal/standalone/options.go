package standalone

import (
	"io"
	"time"

	"github.com/go-logr/logr"
)

// Options say what to run.
type Options struct {
	// Dir is the folder (or file) of manifests; empty is allowed with ForwardTo only.
	Dir string
	// Data is the folder that holds the queue, the plan and generated keys.
	Data string
	// Listen is the API's address; its host must be a loopback address.
	Listen string
	// Dev asks for no API key and allows loopback destinations and http.
	Dev bool
	// ForwardTo, with Dev, replaces every endpoint's address.
	ForwardTo string
	// Grace is how long attempts in flight may take to finish on a stop.
	Grace time.Duration
	// Planned is told how many endpoints there are whenever the manifests have been read and
	// the plan that they make is in force; nil is nobody.
	Planned func(endpoints int)
	// Version goes into the user agent and /version.
	Version string
	// Out gets what a person must see (addresses, generated keys); Log everything else.
	Out io.Writer
	Log logr.Logger
}
