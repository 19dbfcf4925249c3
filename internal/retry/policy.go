package retry

import "time"

// Policy says when a failed delivery is tried again, and which answers count as
// what. The zero Policy is not usable: take BuiltIn or one that Validate accepts.
type Policy struct {
	// Name is the RetryPolicy's name; empty for the pool's or the built-in one.
	Name    string  `json:"name,omitempty"`
	Backoff Backoff `json:"backoff"`
	Jitter  Jitter  `json:"jitter"`
	// MaxAge bounds a delivery's life, from acceptance or the last replay.
	MaxAge     time.Duration `json:"maxAge"`
	Responses  Responses     `json:"responses"`
	RetryAfter RetryAfter    `json:"retryAfter"`
	OnRecovery Recovery      `json:"onRecovery"`
}

// Backoff is exactly one of Schedule and Exponential.
type Backoff struct {
	// Schedule holds the delay after the 1st, 2nd … failure; attempts = len+1.
	Schedule    []time.Duration `json:"schedule,omitempty"`
	Exponential *Exponential    `json:"exponential,omitempty"`
}

// Exponential is min(Initial·Factorⁿ, Max) for n = 0, 1 …
type Exponential struct {
	Initial     time.Duration `json:"initial"`
	Factor      float64       `json:"factor"`
	Max         time.Duration `json:"max"`
	MaxAttempts int           `json:"maxAttempts"`
}

// JitterType names how a delay is spread.
type JitterType string

// The kinds of jitter (DESIGN.md §4): b is the backoff step, p the percentage.
const (
	JitterProportional JitterType = "Proportional" // b·(1+U(0,p))
	JitterEqual        JitterType = "Equal"        // b/2+U(0,b/2)
	JitterFull         JitterType = "Full"         // U(0,b)
	JitterNone         JitterType = "None"         // b
)

// Jitter spreads the delays.
type Jitter struct {
	Type JitterType `json:"type"`
	// Percent is 0 to 100, for Proportional.
	Percent int `json:"percent,omitempty"`
}

// Responses lists status codes ("409") and classes ("5xx").
type Responses struct {
	Retry   []string `json:"retry,omitempty"`
	Fail    []string `json:"fail,omitempty"`
	Disable []string `json:"disable,omitempty"`
}

// RetryAfter says whether a receiver's Retry-After header is obeyed.
type RetryAfter struct {
	Honor bool          `json:"honor"`
	Max   time.Duration `json:"max"`
}

// Recovery says what a lane does with waiting deliveries once its receiver is back.
type Recovery string

// What happens on recovery.
const (
	Expedite Recovery = "Expedite" // bring waiting deliveries forward, oldest first
	Wait     Recovery = "Wait"     // let each come at its own due time
)

// Class is what an answer means for its delivery.
type Class uint8

// The classes of an outcome (DESIGN.md §4).
const (
	Delivered  Class = iota + 1 // done
	Retry                       // try again by the schedule
	DeadLetter                  // no more attempts for this delivery
	Disable                     // dead-letter this delivery and disable the endpoint
	Held                        // a local fault: no attempt was made, nothing is burnt
)

// Why there is no next attempt.
const (
	ReasonOutOfAttempts = "OutOfAttempts"
	ReasonExpired       = "Expired"
)
