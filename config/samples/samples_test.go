package samples_test

import (
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/compile"
	"github.com/doorstep-dev/doorstep/internal/deliver"
	"github.com/doorstep-dev/doorstep/internal/manifest"
)

// The samples are what a newcomer applies first: the CRDs take them, nothing in them is passed over, and they make a plan
// in which the endpoint is usable.
func TestSamplesAreUsable(t *testing.T) {
	loader, err := manifest.NewLoader(".")
	if err != nil {
		t.Fatal(err)
	}
	snapshot := loader.Load()
	for _, problem := range snapshot.Problems {
		t.Errorf("problem: %v", problem)
	}
	for _, note := range snapshot.Notes {
		t.Errorf("note: %v", note)
	}
	objects := snapshot.Objects
	if len(objects.Endpoints) != 2 || len(objects.RetryPolicies) != 1 || len(objects.Pools) != 1 || len(objects.Secrets) != 2 {
		t.Errorf("read %d endpoints, %d retry policies, %d pools and %d Secrets, want 2, 1, 1 and 2",
			len(objects.Endpoints), len(objects.RetryPolicies), len(objects.Pools), len(objects.Secrets))
	}

	now := time.Date(2026, time.November, 30, 12, 0, 0, 0, time.UTC)
	result := compile.Compile(objects, nil, now, compile.Options{})
	for _, problem := range result.Problems {
		t.Errorf("problem: %+v", problem)
	}
	if len(result.Plan.Endpoints) != 2 {
		t.Fatalf("the plan holds %d endpoints, want 2", len(result.Plan.Endpoints))
	}
	for _, endpoint := range result.Plan.Endpoints {
		if endpoint.Problem != nil || len(endpoint.Signing.Keys) != 1 {
			t.Errorf("%s has problem %v and %d keys, want none and 1", endpoint.Name, endpoint.Problem, len(endpoint.Signing.Keys))
		}
		if _, problem := deliver.NewDestination(&endpoint); problem != nil {
			t.Errorf("%s can't be sent to: %v", endpoint.Name, problem)
		}
	}
}
