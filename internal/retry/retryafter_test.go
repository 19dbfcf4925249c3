package retry

import (
	"math"
	"strings"
	"testing"
	"time"
)

var rfcDate = time.Date(2026, 10, 21, 7, 28, 0, 0, time.UTC)

// cases RTY-11, RTY-12, RTY-13, RT45
func TestParseRetryAfter(t *testing.T) {
	const longest = time.Duration(math.MaxInt64)
	before, after := rfcDate.Add(-90*time.Second), rfcDate.Add(90*time.Second)
	for _, row := range []struct {
		name   string
		values []string
		now    time.Time
		want   time.Duration
		ok     bool
	}{
		{"seconds", []string{"120"}, before, 2 * time.Minute, true},
		{"no seconds", []string{"0"}, before, 0, true},
		{"leading zeros", []string{"0000000000000000000000007"}, before, 7 * time.Second, true},
		{"IMF-fixdate", []string{"Wed, 21 Oct 2026 07:28:00 GMT"}, before, 90 * time.Second, true},
		{"RFC 850", []string{"Wednesday, 21-Oct-26 07:28:00 GMT"}, before, 90 * time.Second, true},
		{"asctime", []string{"Wed Oct 21 07:28:00 2026"}, before, 90 * time.Second, true},
		{"asctime, one digit", []string{"Thu Oct  1 07:28:00 2026"}, rfcDate.AddDate(0, 0, -20).Add(-time.Second), time.Second, true},
		{"IMF-fixdate past", []string{"Wed, 21 Oct 2026 07:28:00 GMT"}, after, 0, false},
		{"RFC 850 past", []string{"Wednesday, 21-Oct-26 07:28:00 GMT"}, after, 0, false},
		{"asctime past", []string{"Wed Oct 21 07:28:00 2026"}, after, 0, false},
		{"date just now", []string{"Wed, 21 Oct 2026 07:28:00 GMT"}, rfcDate, 0, false},
		{"year 9999", []string{"Fri, 31 Dec 9999 23:59:59 GMT"}, before, longest, true},
		{"other zone", []string{"Wed, 21 Oct 2026 07:28:00 PST"}, before, 0, false},
		{"other zone, RFC 850", []string{"Wednesday, 21-Oct-26 07:28:00 PST"}, before, 0, false},
		{"numeric zone", []string{"Wed, 21 Oct 2026 07:28:00 +0000"}, before, 0, false},
		{"ISO 8601", []string{"2026-10-21T07:28:00Z"}, before, 0, false},
		{"wrong weekday", []string{"Tue, 21 Oct 2026 07:28:00 GMT"}, before, 0, false},
		{"fraction of a second in a date", []string{"Wed, 21 Oct 2026 07:28:00.5 GMT"}, before, 0, false},
		{"31 February", []string{"Sat, 31 Feb 2026 07:28:00 GMT"}, before, 0, false},
		{"over int64 nanoseconds", []string{"9223372037"}, before, longest, true},
		{"int64 seconds", []string{"9223372036854775807"}, before, longest, true},
		{"over int64", []string{"99999999999999999999"}, before, longest, true},
		{"thousand digits", []string{strings.Repeat("9", 1000)}, before, longest, true},
		{"largest exact", []string{"9223372036"}, before, 9223372036 * time.Second, true},
		{"negative", []string{"-1"}, before, 0, false},
		{"plus", []string{"+5"}, before, 0, false},
		{"fraction", []string{"1.5"}, before, 0, false},
		{"exponent", []string{"1e3"}, before, 0, false},
		{"hexadecimal", []string{"0x10"}, before, 0, false},
		{"two in one", []string{"120, 240"}, before, 0, false},
		{"two lines", []string{"120", "240"}, before, 0, false},
		{"word", []string{"soon"}, before, 0, false},
		{"empty", []string{""}, before, 0, false},
		{"none", nil, before, 0, false},
		{"space", []string{" 120 "}, before, 0, false},
		{"Arabic-Indic digits", []string{"١٢٠"}, before, 0, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, ok := ParseRetryAfter(row.values, row.now)
			if got != row.want || ok != row.ok {
				t.Errorf("ParseRetryAfter(%.40q) = %v, %v, want %v, %v", row.values, got, ok, row.want, row.ok)
			}
		})
	}
}

func TestWait(t *testing.T) {
	thirty, fiveMinutes := BuiltIn(), BuiltIn()
	thirty.Backoff.Schedule = []time.Duration{30 * time.Second}
	fiveMinutes.Backoff.Schedule = []time.Duration{300 * time.Second}
	thirty.Jitter, fiveMinutes.Jitter = Jitter{Type: JitterNone}, Jitter{Type: JitterNone}
	ignoring := thirty
	ignoring.RetryAfter.Honor = false
	for _, row := range []struct {
		name         string
		policy       Policy
		status       int
		header       string
		delay, asked time.Duration
	}{
		// case RT44
		{"asked for longer than the policy", thirty, 503, "120", 120 * time.Second, 120 * time.Second},
		{"asked for shorter than the policy", fiveMinutes, 503, "5", 300 * time.Second, 5 * time.Second},
		{"cut to its maximum", thirty, 503, "999999", 6 * time.Hour, 6 * time.Hour},
		// case RT45
		{"wraps in a naive sum", thirty, 429, "9223372037", 6 * time.Hour, 6 * time.Hour},
		{"most of int64", thirty, 429, "9223372036854775807", 6 * time.Hour, 6 * time.Hour},
		{"beyond int64", thirty, 429, "99999999999999999999", 6 * time.Hour, 6 * time.Hour},
		{"year 9999", thirty, 429, "Fri, 31 Dec 9999 23:59:59 GMT", 6 * time.Hour, 6 * time.Hour},
		// case RTY-10
		{"on 429", thirty, 429, "120", 120 * time.Second, 120 * time.Second},
		{"on 408", thirty, 408, "120", 120 * time.Second, 120 * time.Second},
		{"on 425", thirty, 425, "120", 120 * time.Second, 120 * time.Second},
		{"on 599", thirty, 599, "120", 120 * time.Second, 120 * time.Second},
		{"not on 200", thirty, 200, "120", 30 * time.Second, 0},
		{"not on 301", thirty, 301, "120", 30 * time.Second, 0},
		{"not on 409", thirty, 409, "120", 30 * time.Second, 0},
		{"not without an answer", thirty, 0, "120", 30 * time.Second, 0},
		{"not where the policy ignores it", ignoring, 503, "120", 30 * time.Second, 0},
		// case RTY-12
		{"unreadable", thirty, 503, "-1", 30 * time.Second, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			delay, asked := row.policy.Wait(1, 0.5, row.status, []string{row.header}, rfcDate)
			if delay != row.delay || asked != row.asked {
				t.Errorf("Wait = %v, %v, want %v, %v", delay, asked, row.delay, row.asked)
			}
		})
	}
}

func FuzzParseRetryAfter(f *testing.F) {
	for _, s := range []string{"120", "-1", "9223372037", "Wed, 21 Oct 2026 07:28:00 GMT", "Wednesday, 21-Oct-26 07:28:00 GMT", "Wed Oct 21 07:28:00 2026", "120, 240", ""} {
		f.Add(s, int64(1_792_000_000))
	}
	f.Fuzz(func(t *testing.T, s string, unix int64) {
		now := time.Unix(unix%(1<<40), 0)
		d, ok := ParseRetryAfter([]string{s}, now)
		if d < 0 || (!ok && d != 0) {
			t.Errorf("ParseRetryAfter(%q) = %v, %v", s, d, ok)
		}
		p := BuiltIn()
		if delay, asked := p.Wait(1, 0, 503, []string{s}, now); delay < time.Minute || delay > 6*time.Hour || asked > p.RetryAfter.Max {
			t.Errorf("Wait after %q = %v, %v", s, delay, asked)
		}
	})
}
