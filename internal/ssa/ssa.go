package ssa

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Configuration gives an object of the API as its apply configuration A: the two have one
// JSON form, in which what is unset is left out. It panics where A is of another form, which
// is a mistake in the program and not in the object.
func Configuration[A any](from any) *A {
	b, err := json.Marshal(from)
	if err == nil {
		into := new(A)
		if err = json.Unmarshal(b, into); err == nil {
			return into
		}
	}
	panic(fmt.Sprintf("%T has no apply configuration of its form: %v", from, err))
}

// maxMessage is how many bytes the API server takes of a condition's message
// (metav1.Condition).
const maxMessage = 32768

// Condition completes a condition that is to follow those before: its time is that of the
// one before it while the status stays, and now, in whole seconds, when it changes. A
// message that the API server would refuse is cut.
func Condition(before []metav1.Condition, c metav1.Condition, now time.Time) metav1.Condition {
	c.Message = bounded(c.Message)
	c.LastTransitionTime = metav1.NewTime(now).Rfc3339Copy()
	if was := apimeta.FindStatusCondition(before, c.Type); was != nil && was.Status == c.Status {
		c.LastTransitionTime = was.LastTransitionTime
	}
	return c
}

func bounded(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage-3], "") + "..."
}
