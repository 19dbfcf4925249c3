package retry

import (
	"testing"
	"time"
)

// cases RT65, RTY-01, RTY-03, RTY-04, RTY-05
func TestClassifyBuiltIn(t *testing.T) {
	p := BuiltIn()
	want := map[Class][]int{
		Delivered:  {200, 201, 202, 204, 206, 226, 299},
		Retry:      {300, 301, 302, 303, 304, 307, 308, 399, 408, 409, 425, 429, 500, 501, 502, 503, 504, 505, 520, 599},
		Disable:    {410},
		DeadLetter: {100, 101, 103, 199, 400, 401, 402, 403, 404, 405, 407, 411, 413, 415, 421, 422, 451, 499},
	}
	for class, codes := range want {
		for _, code := range codes {
			if got := p.Classify(code); got != class {
				t.Errorf("Classify(%d) = %d, want %d", code, got, class)
			}
		}
	}
	for _, malformed := range []int{600, 999, 99, 1, 0, -1} {
		if got := p.Classify(malformed); got != Retry {
			t.Errorf("Classify(%d) = %d, want Retry: a malformed answer", malformed, got)
		}
	}
}

func TestClassifyLists(t *testing.T) {
	for _, row := range []struct {
		name      string
		responses Responses
		status    int
		want      Class
	}{
		{"no lists: defaults", Responses{}, 503, Retry},
		{"no lists: 410 disables", Responses{}, 410, Disable},
		{"retry replaces its default", Responses{Retry: []string{"429"}}, 500, DeadLetter},
		{"and leaves the disable default", Responses{Retry: []string{"429"}}, 410, Disable},
		{"disable replaces its default", Responses{Disable: []string{"404"}}, 410, DeadLetter},
		{"and then 410 may be retried", Responses{Disable: []string{"404"}, Retry: []string{"4xx"}}, 410, Retry},
		{"a code beats a class: fail", Responses{Retry: []string{"5xx"}, Fail: []string{"501"}}, 501, DeadLetter},
		{"a code beats a class: retry", Responses{Retry: []string{"404"}, Fail: []string{"4xx"}, Disable: []string{"4xx"}}, 404, Retry},
		{"equal codes: disable first", Responses{Retry: []string{"410"}, Fail: []string{"410"}, Disable: []string{"410"}}, 410, Disable},
		{"equal codes: fail before retry", Responses{Retry: []string{"409"}, Fail: []string{"409"}}, 409, DeadLetter},
		{"equal classes: disable first", Responses{Retry: []string{"4xx"}, Fail: []string{"4xx"}, Disable: []string{"4xx"}}, 404, Disable},
		{"equal classes: fail before retry", Responses{Retry: []string{"4xx"}, Fail: []string{"4xx"}}, 404, DeadLetter},
		{"case RTY-05: 404 by a list", Responses{Retry: []string{"404"}}, 404, Retry},
		{"2xx is delivered whatever the lists say", Responses{Fail: []string{"200", "2xx"}}, 200, Delivered},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := BuiltIn()
			p.Responses = row.responses
			if got := p.Classify(row.status); got != row.want {
				t.Errorf("Classify(%d) = %d, want %d", row.status, got, row.want)
			}
		})
	}
}

func TestValidateNamesTheField(t *testing.T) {
	for _, row := range []struct {
		want   string
		change func(*Policy)
	}{
		{"backoff must have exactly one of schedule and exponential", func(p *Policy) { p.Backoff = Backoff{} }},
		{"backoff must have exactly one of schedule and exponential", func(p *Policy) { p.Backoff.Exponential = &Exponential{} }},
		{"backoff.schedule has 101 delays; at most 100 are allowed", func(p *Policy) { p.Backoff.Schedule = make([]time.Duration, 101) }},
		{"backoff.schedule[1] must be longer than 0s", func(p *Policy) { p.Backoff.Schedule[1] = 0 }},
		{"backoff.exponential.initial must be longer than 0s", func(p *Policy) { p.Backoff = Backoff{Exponential: &Exponential{0, 2, 2, 3}} }},
		{"backoff.exponential.max must not be shorter than initial", func(p *Policy) { p.Backoff = Backoff{Exponential: &Exponential{3, 2, 2, 3}} }},
		{"backoff.exponential.factor must be from 1 to 10", func(p *Policy) { p.Backoff = Backoff{Exponential: &Exponential{1, 11, 2, 3}} }},
		{"backoff.exponential.maxAttempts must be from 1 to 200", func(p *Policy) { p.Backoff = Backoff{Exponential: &Exponential{1, 2, 2, 201}} }},
		{"jitter.type must be Proportional, Full, Equal or None", func(p *Policy) { p.Jitter.Type = "" }},
		{"jitter.percent must be from 0 to 100", func(p *Policy) { p.Jitter.Percent = 101 }},
		{"maxAge must be at least 1s", func(p *Policy) { p.MaxAge = 0 }},
		{"responses.retry[0] must be a code from 300 to 599 or one of 3xx, 4xx and 5xx", func(p *Policy) { p.Responses.Retry = []string{"2xx"} }},
		{"responses.fail[1] must be a code from 300 to 599 or one of 3xx, 4xx and 5xx", func(p *Policy) { p.Responses.Fail = []string{"404", "60"} }},
		{"responses.disable[0] must be a code from 300 to 599 or one of 3xx, 4xx and 5xx", func(p *Policy) { p.Responses.Disable = []string{"4x0"} }},
		{"retryAfter.max must be longer than 0s", func(p *Policy) { p.RetryAfter.Max = 0 }},
		{"onRecovery must be Expedite or Wait", func(p *Policy) { p.OnRecovery = "" }},
	} {
		t.Run(row.want, func(t *testing.T) {
			p := BuiltIn()
			row.change(&p)
			if err := p.Validate(); err == nil || err.Error() != row.want {
				t.Errorf("Validate = %v, want %q", err, row.want)
			}
		})
	}
}

func TestHashSeesEveryChangeButTheName(t *testing.T) {
	base := BuiltIn()
	again := BuiltIn()
	again.Name = "patient"
	if base.Hash() != again.Hash() {
		t.Error("the name changes the hash")
	}
	seen := map[string]int{base.Hash(): -1}
	for i, change := range []func(*Policy){
		func(p *Policy) { p.Backoff.Schedule[0]++ },
		func(p *Policy) { p.Backoff = Backoff{Exponential: &Exponential{1, 2, 3, 4}} },
		func(p *Policy) { p.Backoff = Backoff{Exponential: &Exponential{1, 2, 3, 5}} },
		func(p *Policy) { p.Jitter.Type = JitterFull },
		func(p *Policy) { p.Jitter.Percent++ },
		func(p *Policy) { p.MaxAge++ },
		func(p *Policy) { p.Responses.Retry = nil },
		func(p *Policy) { p.Responses.Fail = []string{"404"} },
		func(p *Policy) { p.Responses.Disable = []string{"404"} },
		func(p *Policy) { p.RetryAfter.Honor = false },
		func(p *Policy) { p.RetryAfter.Max++ },
		func(p *Policy) { p.OnRecovery = Wait },
	} {
		p := BuiltIn()
		change(&p)
		if was, ok := seen[p.Hash()]; ok {
			t.Errorf("change %d gives the hash of change %d", i, was)
		}
		seen[p.Hash()] = i
	}
	if got := base.Hash(); got != "e15afa32fb0be0b8" {
		t.Errorf("Hash = %q: a changed hash makes every worker of the next release compute its due times anew", got)
	}
}
