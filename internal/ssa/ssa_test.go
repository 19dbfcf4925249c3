package ssa_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/doorstep-dev/doorstep/internal/ssa"
)

func TestConfigurationLeavesOutWhatIsUnset(t *testing.T) {
	c := ssa.Configuration[applycore.TolerationApplyConfiguration](&corev1.Toleration{Key: "a", Effect: corev1.TaintEffectNoSchedule})
	if c.Key == nil || *c.Key != "a" || c.Effect == nil || *c.Effect != corev1.TaintEffectNoSchedule {
		t.Errorf("what is set is lost: %+v", c)
	}
	if c.Operator != nil || c.Value != nil || c.TolerationSeconds != nil {
		t.Errorf("what is unset would be owned: %+v", c)
	}
}

func TestConfigurationOfAnotherFormPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a list was taken for a toleration")
		}
	}()
	ssa.Configuration[applycore.TolerationApplyConfiguration]([]int{1})
}

func TestTimeOfAConditionMovesWithItsStatusOnly(t *testing.T) {
	then := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	now := then.Add(time.Hour + time.Millisecond)
	before := []metav1.Condition{
		{Type: "Other", Status: metav1.ConditionFalse, LastTransitionTime: metav1.NewTime(then.Add(-time.Hour))},
		{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Old", LastTransitionTime: metav1.NewTime(then)},
	}
	for _, c := range []struct {
		name   string
		before []metav1.Condition
		status metav1.ConditionStatus
		want   time.Time
	}{
		{"the first one", nil, metav1.ConditionTrue, now.Truncate(time.Second)},
		{"another reason", before, metav1.ConditionTrue, then},
		{"another status", before, metav1.ConditionFalse, now.Truncate(time.Second)},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := ssa.Condition(c.before, metav1.Condition{Type: "Ready", Status: c.status, Reason: "New", ObservedGeneration: 7}, now)
			if !got.LastTransitionTime.Time.Equal(c.want) {
				t.Errorf("its time is %v, want %v", got.LastTransitionTime, c.want)
			}
			if got.Reason != "New" || got.Status != c.status || got.ObservedGeneration != 7 {
				t.Errorf("it says something else: %+v", got)
			}
		})
	}
}

func TestALongMessageIsCutBetweenCharacters(t *testing.T) {
	got := ssa.Condition(nil, metav1.Condition{Message: strings.Repeat("é", 20000)}, time.Now()).Message
	if len(got) > 32768 || !strings.HasSuffix(got, "é...") || !utf8.ValidString(got) {
		t.Errorf("%d bytes, which end with %q", len(got), got[len(got)-8:])
	}
}
