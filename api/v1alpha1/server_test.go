package v1alpha1_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/test/cluster"
)

// strict asks the API server to refuse unknown fields, as kubectl does.
const strict = client.FieldValidation(metav1.FieldValidationStrict)

// askServer has an API server judge the object, on its creation or as a change of old, without keeping it. It must find
// the wanted faults and no others, and answer an object without faults with its spec as written (cases CR166 and CR168:
// durations in other units, defaults and empty lists written out). It reports whether the object was taken.
func askServer(t *testing.T, obj, old map[string]any, want []string) bool {
	t.Helper()
	server := cluster.Shared(t)
	u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(obj)}
	if err := server.EnsureNamespace(t.Context(), u.GetNamespace(), nil); err != nil {
		t.Fatal(err)
	}
	var err error
	if old == nil {
		err = server.Client.Create(t.Context(), u, client.DryRunAll, strict)
	} else {
		before := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(old)}
		if err := server.Client.Create(t.Context(), before, strict); err != nil {
			t.Fatalf("making the object to change: %v", err)
		}
		defer func() {
			if err := server.Client.Delete(t.Context(), before); err != nil {
				t.Error(err)
			}
		}()
		u.SetResourceVersion(before.GetResourceVersion())
		err = server.Client.Update(t.Context(), u, client.DryRunAll, strict)
	}
	if err != nil {
		if fault := compareAnswer(err, want); fault != "" {
			t.Errorf("the API server answers %v\n%s; want\n  %s", err, fault, strings.Join(want, "\n  "))
		}
		return false
	}
	if len(want) > 0 {
		t.Errorf("the API server takes it; want it to answer\n  %s", strings.Join(want, "\n  "))
	} else if !reflect.DeepEqual(u.Object["spec"], obj["spec"]) {
		t.Errorf("the API server answers spec %v, want it as written: %v", u.Object["spec"], obj["spec"])
	}
	return true
}

// notChecked is what the API server adds where a fault kept it from going on to the rules.
const notChecked = "some validation rules were not checked because the object was invalid"

// compareAnswer says how the API server's answer differs from the wanted faults, each "field: text"; empty if it doesn't.
func compareAnswer(err error, want []string) string {
	var status apierrors.APIStatus
	switch {
	case apierrors.IsBadRequest(err) && strings.Contains(err.Error(), "strict decoding error"):
		return compareUnknown(err.Error(), want)
	case !errors.As(err, &status) || status.Status().Details == nil || !apierrors.IsInvalid(err):
		return "not that it is invalid"
	}
	causes := slices.DeleteFunc(slices.Clone(status.Status().Details.Causes), func(cause metav1.StatusCause) bool {
		return strings.Contains(cause.Message, notChecked)
	})
	if len(causes) != len(want) {
		return fmt.Sprintf("with %d faults", len(causes))
	}
	for _, w := range want {
		field, text, _ := strings.Cut(w, ": ")
		i := slices.IndexFunc(causes, func(cause metav1.StatusCause) bool {
			return cause.Field == field && strings.Contains(cause.Message, text)
		})
		if i < 0 {
			return "without " + w
		}
		causes = slices.Delete(causes, i, i+1)
	}
	return ""
}

// compareUnknown is compareAnswer for fields that no kind has. The API server looks no further than at those.
func compareUnknown(answer string, want []string) string {
	if len(want) != strings.Count(answer, "unknown field") {
		return "with another number of faults"
	}
	for _, w := range want {
		field, _, _ := strings.Cut(w, ": ")
		if !strings.Contains(answer, fmt.Sprintf("unknown field %q", field)) {
			return "without " + w
		}
	}
	return ""
}
