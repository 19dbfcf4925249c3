package v1alpha1_test

import (
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
)

func TestDurationParse(t *testing.T) {
	for _, row := range []struct {
		text v1alpha1.Duration
		want time.Duration
	}{
		{"15s", 15 * time.Second},
		{"5ms", 5 * time.Millisecond},
		{"0s", 0},
		{"1h30m", 90 * time.Minute},
		{"30m1h", 90 * time.Minute},
		{"1m1m", 2 * time.Minute},
		{"00060s", time.Minute},
		// The longest text is far from the 292 years a time.Duration holds.
		{"99999h99999h99999h99999h", 4 * 99999 * time.Hour},
	} {
		got, err := row.text.Parse()
		if err != nil || got != row.want {
			t.Errorf("Parse(%q) = %v, %v, want %v", row.text, got, err, row.want)
		}
	}
	for _, text := range []v1alpha1.Duration{
		"", "s", "15", "-1s", "+1s", "1.5h", "3d", "100000s", "1s1s1s1s1s", "15S", " 15s", "15s ", "15s\n", "1us", "１s",
		"9223372036854775807s",
	} {
		if got, err := text.Parse(); err == nil {
			t.Errorf("Parse(%q) = %v, want an error", text, got)
		}
	}
}

func TestDurationParseOr(t *testing.T) {
	if got, err := v1alpha1.Duration("").ParseOr(time.Minute); err != nil || got != time.Minute {
		t.Errorf("unset: %v, %v, want 1m", got, err)
	}
	if got, err := v1alpha1.Duration("0s").ParseOr(time.Minute); err != nil || got != 0 {
		t.Errorf("0s: %v, %v, want 0s", got, err)
	}
	if got, err := v1alpha1.Duration("soon").ParseOr(time.Minute); err == nil {
		t.Errorf("soon: %v, want an error", got)
	}
}

// The built-in policy makes sense in itself: its schedule ends within its maximal age, jitter included.
func TestBuiltInPolicyFits(t *testing.T) {
	var span time.Duration
	for _, step := range v1alpha1.DefaultSchedule() {
		span += step
	}
	if want := 36*time.Hour + 36*time.Minute; span != want {
		t.Errorf("the schedule spans %v, want %v", span, want)
	}
	if longest := span + span*time.Duration(v1alpha1.DefaultJitterPercent)/100; longest > v1alpha1.DefaultMaxAge {
		t.Errorf("the schedule spans up to %v, beyond maxAge %v", longest, v1alpha1.DefaultMaxAge)
	}
}
