package retry

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"time"
)

// Bounds of a policy (DESIGN.md §4).
const (
	maxSteps    = 100
	maxAttempts = 200
	maxFactor   = 10
)

// BuiltIn is the policy of endpoints whose pool and spec name none: seven
// attempts over 36 h 36 m.
func BuiltIn() Policy {
	return Policy{
		Backoff: Backoff{Schedule: []time.Duration{
			60 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 10 * time.Hour, 24 * time.Hour,
		}},
		Jitter:     Jitter{Type: JitterProportional, Percent: 10},
		MaxAge:     72 * time.Hour,
		Responses:  Responses{Retry: defaultRetry(), Disable: defaultDisable()},
		RetryAfter: RetryAfter{Honor: true, Max: 6 * time.Hour},
		OnRecovery: Expedite,
	}
}

func defaultRetry() []string   { return []string{"3xx", "408", "409", "425", "429", "5xx"} }
func defaultDisable() []string { return []string{"410"} }

// Hash changes whenever anything but the name of the policy does. It is the same
// in every process and release that knows the same fields.
func (p *Policy) Hash() string {
	unnamed := *p
	unnamed.Name = ""
	b, err := json.Marshal(&unnamed)
	if err != nil {
		// Only a factor that is no number gets here, which Validate refuses.
		b = fmt.Appendf(nil, "%+v", unnamed)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// Validate says what is wrong with the policy, naming the field as it is written
// in a RetryPolicy's spec. It returns the first fault found.
func (p *Policy) Validate() error {
	for _, check := range []func() error{
		p.Backoff.validate, p.Jitter.validate, p.Responses.validate, p.validateRest,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (b *Backoff) validate() error {
	e := b.Exponential
	if (len(b.Schedule) > 0) == (e != nil) {
		return fmt.Errorf("backoff must have exactly one of schedule and exponential")
	}
	if e == nil {
		if len(b.Schedule) > maxSteps {
			return fmt.Errorf("backoff.schedule has %d delays; at most %d are allowed", len(b.Schedule), maxSteps)
		}
		for i, d := range b.Schedule {
			if d <= 0 {
				return fmt.Errorf("backoff.schedule[%d] must be longer than 0s", i)
			}
		}
		return nil
	}
	switch {
	case e.Initial <= 0:
		return fmt.Errorf("backoff.exponential.initial must be longer than 0s")
	case e.Max < e.Initial:
		return fmt.Errorf("backoff.exponential.max must not be shorter than initial")
	case math.IsNaN(e.Factor) || e.Factor < 1 || e.Factor > maxFactor:
		return fmt.Errorf("backoff.exponential.factor must be from 1 to %d", maxFactor)
	case e.MaxAttempts < 1 || e.MaxAttempts > maxAttempts:
		return fmt.Errorf("backoff.exponential.maxAttempts must be from 1 to %d", maxAttempts)
	}
	return nil
}

func (j *Jitter) validate() error {
	switch j.Type {
	case JitterProportional, JitterEqual, JitterFull, JitterNone:
	default:
		return fmt.Errorf("jitter.type must be Proportional, Full, Equal or None")
	}
	if j.Percent < 0 || j.Percent > 100 {
		return fmt.Errorf("jitter.percent must be from 0 to 100")
	}
	return nil
}

func (r *Responses) validate() error {
	for _, list := range []struct {
		name    string
		entries []string
	}{{"retry", r.Retry}, {"fail", r.Fail}, {"disable", r.Disable}} {
		for i, s := range list.entries {
			if !validPattern(s) {
				return fmt.Errorf("responses.%s[%d] must be a code from 300 to 599 or one of 3xx, 4xx and 5xx", list.name, i)
			}
		}
	}
	return nil
}

// validPattern takes "3xx" to "5xx" and "300" to "599".
func validPattern(s string) bool {
	if len(s) != 3 || s[0] < '3' || s[0] > '5' {
		return false
	}
	return s[1:] == "xx" || (isDigit(s[1]) && isDigit(s[2]))
}

func (p *Policy) validateRest() error {
	switch {
	case p.MaxAge < time.Second:
		return fmt.Errorf("maxAge must be at least 1s")
	case p.RetryAfter.Honor && p.RetryAfter.Max <= 0:
		return fmt.Errorf("retryAfter.max must be longer than 0s")
	case p.OnRecovery != Expedite && p.OnRecovery != Wait:
		return fmt.Errorf("onRecovery must be Expedite or Wait")
	}
	return nil
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
