package retry

import (
	"math"
	"time"
)

// The three forms of an HTTP-date (RFC 9110 §5.6.7). GMT is spelled out, so that
// other zones, which time.Parse would take for UTC, are no match.
var dateLayouts = [...]string{
	"Mon, 02 Jan 2006 15:04:05 GMT",
	"Monday, 02-Jan-06 15:04:05 GMT",
	"Mon Jan _2 15:04:05 2006",
}

// ParseRetryAfter reads the values of a Retry-After header (RFC 9110 §10.2.3):
// exactly one, either delay-seconds (digits only) or an HTTP-date in any of its
// three forms. ok is false for anything else, and for a date that isn't in the
// future. A value too large for a Duration gives the longest Duration.
func ParseRetryAfter(values []string, now time.Time) (d time.Duration, ok bool) {
	if len(values) != 1 || values[0] == "" {
		return 0, false
	}
	v := values[0]
	if isDigit(v[0]) {
		return parseSeconds(v)
	}
	for _, layout := range dateLayouts {
		t, err := time.Parse(layout, v)
		// time.Parse is lenient (fractions of seconds, any weekday); a date counts
		// only if it is written exactly as we would write it.
		if err != nil || t.Format(layout) != v {
			continue
		}
		d = t.Sub(now) // saturates
		return max(d, 0), d > 0
	}
	return 0, false
}

// parseSeconds reads 1*DIGIT. It clamps in seconds, before they become
// nanoseconds and could wrap around.
func parseSeconds(v string) (time.Duration, bool) {
	const most = math.MaxInt64 / int64(time.Second)
	var n int64
	for i := range len(v) {
		if !isDigit(v[i]) {
			return 0, false
		}
		if n <= most {
			n = n*10 + int64(v[i]-'0')
		}
	}
	if n > most {
		return math.MaxInt64, true
	}
	return time.Duration(n) * time.Second, true
}
