package client_test

import (
	"encoding/json"
	"iter"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/client"
	"github.com/doorstep-dev/doorstep/internal/ingest"
)

// The package writes the API's types out as its own; each is the server's, member by member.
func TestTypesAgreeWithTheServers(t *testing.T) {
	for _, pair := range []struct{ mine, servers any }{
		{client.Receipt{}, ingest.Receipt{}},
		{client.BatchReceipt{}, ingest.BatchReceipt{}},
		{client.AcceptedEvent{}, ingest.Event{}},
		{client.EventList{}, ingest.EventList{}},
		{client.DeliveryList{}, ingest.DeliveryList{}},
		{client.EndpointList{}, ingest.EndpointList{}},
		{client.AuditList{}, ingest.AuditList{}},
		{client.ReplayRequest{}, ingest.ReplayRequest{}},
		{client.ReplayResult{}, ingest.ReplayResult{}},
		{client.SelectedReplayRequest{}, ingest.SelectedReplayRequest{}},
		{client.SelectedReplayResult{}, ingest.SelectedReplayResult{}},
		{client.TestResult{}, ingest.TestResult{}},
		{client.RetryResult{}, ingest.RetryResult{}},
		{client.EnableResult{}, ingest.EnableResult{}},
		{client.EraseResult{}, ingest.EraseResult{}},
		{client.Problem{}, ingest.Problem{}},
	} {
		mine, servers := reflect.TypeOf(pair.mine), reflect.TypeOf(pair.servers)
		agree(t, mine.String(), mine, servers)
	}
}

func agree(t *testing.T, at string, mine, servers reflect.Type) {
	t.Helper()
	if mine.Kind() != servers.Kind() {
		t.Errorf("%s is a %s, the server's is a %s", at, mine.Kind(), servers.Kind())
		return
	}
	switch mine.Kind() {
	case reflect.Pointer, reflect.Slice:
		agree(t, at, mine.Elem(), servers.Elem())
	case reflect.Map:
		agree(t, at, mine.Key(), servers.Key())
		agree(t, at, mine.Elem(), servers.Elem())
	case reflect.Struct:
		if mine == reflect.TypeFor[time.Time]() || servers == reflect.TypeFor[time.Time]() {
			if mine != servers {
				t.Errorf("%s is %s, the server's is %s", at, mine, servers)
			}
			return
		}
		has := membersOf(servers)
		for name, typ := range membersOf(mine) {
			other, ok := has[name]
			if !ok {
				t.Errorf("%s: the server's %s has no member %s", at, servers, name)
				continue
			}
			agree(t, at+"."+name, typ, other)
			delete(has, name)
		}
		for name := range has {
			t.Errorf("%s has no member %s, which the server's %s has", at, name, servers)
		}
	}
}

// membersOf are the JSON members of a struct, with what their tags say of empty values.
func membersOf(typ reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for i := range typ.NumField() {
		if f := typ.Field(i); f.IsExported() && f.Tag.Get("json") != "-" {
			out[f.Tag.Get("json")] = f.Type
		}
	}
	return out
}

// The words that are constants here are the server's.
func TestWordsAgreeWithTheServers(t *testing.T) {
	for mine, servers := range map[client.DeliveryState]ingest.DeliveryState{
		client.StatePending: ingest.StatePending, client.StateRetrying: ingest.StateRetrying,
		client.StateInFlight: ingest.StateInFlight, client.StateHeld: ingest.StateHeld,
		client.StateDelivered: ingest.StateDelivered, client.StateDeadLettered: ingest.StateDeadLettered,
		client.StateFilterError: ingest.StateFilterError, client.StateDiscarded: ingest.StateDiscarded,
	} {
		if string(mine) != string(servers) || mine.Waiting() != servers.Waiting() {
			t.Errorf("%s (%v) is the server's %s (%v)", mine, mine.Waiting(), servers, servers.Waiting())
		}
	}
	for mine, servers := range map[client.LaneState]ingest.LaneState{
		client.LaneActive: ingest.LaneActive, client.LaneBackingOff: ingest.LaneBackingOff,
		client.LaneDraining: ingest.LaneDraining, client.LaneDisabled: ingest.LaneDisabled,
		client.LaneSuspended: ingest.LaneSuspended, client.LaneUnresolved: ingest.LaneUnresolved,
		client.LaneMissing: ingest.LaneMissing, client.LaneNotInPlan: ingest.LaneNotInPlan,
	} {
		if string(mine) != string(servers) {
			t.Errorf("%s is the server's %s", mine, servers)
		}
	}
}

// Every call that the server's own description has is made by a method of Client, and no other.
func TestEveryCallIsDescribed(t *testing.T) {
	s, ctx := newServer(t), t.Context()
	made := map[string]bool{}
	s.seen = func(r *http.Request) {
		path := strings.NewReplacer("/evt_1", "/{webhookId}", "/orders", "/{name}").Replace(r.URL.Path)
		made[r.Method+" "+strings.TrimPrefix(path, "/v1/namespaces/shop")] = true
	}
	// How each ends is not asked here.
	_, _ = s.Send(ctx, "shop", client.Event{ID: "evt_1", Type: "a"})
	_, _ = s.Get(ctx, "shop", "evt_1")
	_, _ = s.Payload(ctx, "shop", "evt_1")
	_, _ = s.Replay(ctx, "shop", "evt_1", client.ReplayRequest{})
	_, _ = s.Erase(ctx, "shop", "evt_1", "")
	_, _ = s.Endpoint(ctx, "shop", "orders")
	_, _ = s.ReplaySelection(ctx, "shop", "orders", client.SelectedReplayRequest{})
	_, _ = s.Test(ctx, "shop", "orders", "")
	_, _ = s.Retry(ctx, "shop", "orders", "")
	_, _ = s.Enable(ctx, "shop", "orders", "")
	_, _ = s.EventPage(ctx, "shop", client.EventFilter{})
	drain(s.Endpoints(ctx, "shop", 0))
	drain(s.Deliveries(ctx, "shop", client.DeliveryFilter{}))
	drain(s.Deliveries(ctx, "shop", client.DeliveryFilter{Endpoint: "orders"}))
	drain(s.Audit(ctx, "shop", client.AuditFilter{}))

	s.seen = nil
	for call := range described(t, s.url) {
		if !made[call] {
			t.Errorf("%s is described, and no method makes it", call)
		}
		delete(made, call)
	}
	for call := range made {
		t.Errorf("%s is made, and not described", call)
	}
}

func drain[T any](items iter.Seq2[T, error]) {
	for range items {
	}
}

// described are the calls about a namespace that /openapi.json has.
func described(t *testing.T, url string) map[string]bool {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/openapi.json", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var doc struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.NewDecoder(res.Body).Decode(&doc); err != nil {
		t.Fatal(err)
	}
	calls := map[string]bool{}
	for path, methods := range doc.Paths {
		below, ok := strings.CutPrefix(path, "/v1/namespaces/{namespace}")
		for method := range methods {
			if ok && slices.Contains([]string{"get", "post", "put", "patch", "delete"}, method) {
				calls[strings.ToUpper(method)+" "+below] = true
			}
		}
	}
	if len(calls) < 10 {
		t.Fatalf("only %d calls are described", len(calls))
	}
	return calls
}
