package ingest_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/doorstep-dev/doorstep/internal/ingest"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

// planKey makes a key of the plan and gives its text.
func planKey(t *testing.T, id string, change ...func(*plan.APIKey)) (string, plan.APIKey) {
	t.Helper()
	text, key, err := ingest.NewAPIKey(id)
	if err != nil {
		t.Fatal(err)
	}
	k := plan.APIKey{ID: id, SHA256: key.SHA256, Namespaces: []string{"shop"}, Verbs: []string{plan.KeyRead}}
	for _, f := range change {
		f(&k)
	}
	return text, k
}

// authorize asks an Authorizer as the Server does.
func authorize(a ingest.Authorizer, key string, q ingest.Request) (ingest.Caller, int, string) {
	r := &http.Request{Header: http.Header{}}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	caller, err := a.Authorize(r, q)
	if err == nil {
		return caller, http.StatusOK, ""
	}
	problem := err.(*ingest.Problem)
	return caller, problem.Status, problem.Error()
}

func TestAKeyIsGoodForWhatItsEntrySays(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*plan.APIKey)
		q      ingest.Request
		status int
		words  string
	}{
		{"its namespace and verb", nil, ingest.Request{Verb: ingest.VerbRead, Namespace: "shop"}, 200, ""},
		{"another namespace", nil, ingest.Request{Verb: ingest.VerbRead, Namespace: "shop2"}, 403, "namespace: "},
		{"any namespace", func(k *plan.APIKey) { k.Namespaces = []string{"*"} }, ingest.Request{Verb: ingest.VerbList, Namespace: "bank"}, 200, ""},
		{"another verb", nil, ingest.Request{Verb: ingest.VerbSend, Namespace: "shop"}, 403, "must have the verb send"},
		{"no verb", func(k *plan.APIKey) { k.Verbs = nil }, ingest.Request{Verb: ingest.VerbRead, Namespace: "shop"}, 403, "must have the verb read"},
		{"a verb of a later release", func(k *plan.APIKey) { k.Verbs = []string{"fly"} }, ingest.Request{Verb: ingest.VerbRead, Namespace: "shop"}, 403, "the verb read"},
		{"its endpoint", func(k *plan.APIKey) { k.Endpoints = []string{"orders"} }, ingest.Request{Verb: ingest.VerbList, Namespace: "shop", Endpoint: "orders"}, 200, ""},
		{"another endpoint", func(k *plan.APIKey) { k.Endpoints = []string{"orders"} }, ingest.Request{Verb: ingest.VerbList, Namespace: "shop", Endpoint: "audit"}, 403, "endpoint: "},
		{"no endpoint in the path", func(k *plan.APIKey) { k.Endpoints = []string{"orders"} }, ingest.Request{Verb: ingest.VerbRead, Namespace: "shop"}, 200, ""},
		{"expired", func(k *plan.APIKey) { k.ExpiresAt = time.Now() }, ingest.Request{Verb: ingest.VerbRead, Namespace: "shop"}, 401, "has expired"},
		{"expired, and for another namespace", func(k *plan.APIKey) { k.ExpiresAt = time.Now() }, ingest.Request{Verb: ingest.VerbRead, Namespace: "bank"}, 401, "has expired"},
	} {
		t.Run(row.name, func(t *testing.T) {
			text, key := planKey(t, "ci")
			if row.change != nil {
				row.change(&key)
			}
			p := &plan.Plan{Pool: plan.Pool{APIKeys: []plan.APIKey{key}}}
			caller, status, words := authorize(ingest.PlanKeys(func() *plan.Plan { return p }), text, row.q)
			if status != row.status || !strings.Contains(words, row.words) {
				t.Errorf("%d %q, want %d %q", status, words, row.status, row.words)
			}
			if status == 200 && (caller.Name != "key:ci" || strings.Join(caller.Endpoints, ",") != strings.Join(key.Endpoints, ",")) {
				t.Errorf("caller is %+v", caller)
			}
			if strings.Contains(words, text) {
				t.Errorf("the words hold the key: %s", words)
			}
		})
	}
}

// Each verb of the API is opened by exactly one verb of a key.
func TestEachVerbHasItsKey(t *testing.T) {
	names := []string{plan.KeySend, plan.KeyRead, plan.KeyPayload, plan.KeyReplay, plan.KeyManage, plan.KeyErase, plan.KeyAudit}
	for _, verb := range ingest.Verbs {
		var opened []string
		for _, name := range names {
			text, key := planKey(t, "ci", func(k *plan.APIKey) { k.Verbs = []string{name} })
			p := &plan.Plan{Pool: plan.Pool{APIKeys: []plan.APIKey{key}}}
			if _, status, _ := authorize(ingest.PlanKeys(func() *plan.Plan { return p }), text, ingest.Request{Verb: verb, Namespace: "shop"}); status == 200 {
				opened = append(opened, name)
			}
		}
		if len(opened) != 1 {
			t.Errorf("%s is opened by %v, want one verb", verb, opened)
		}
	}
}

// Another key of a known id and an unknown id are answered alike. Without a plan no key is known to be bad.
func TestAKeyThatIsNotKnown(t *testing.T) {
	good, key := planKey(t, "ci")
	wrong, _ := planKey(t, "ci")
	unknown, _ := planKey(t, "other")
	master, masterKey, err := ingest.NewAPIKey("standalone")
	if err != nil {
		t.Fatal(err)
	}
	wrongMaster, _, err := ingest.NewAPIKey("standalone")
	if err != nil {
		t.Fatal(err)
	}
	var p *plan.Plan
	a := ingest.PlanKeys(func() *plan.Plan { return p }, masterKey)
	q := ingest.Request{Verb: ingest.VerbRead, Namespace: "shop"}
	const words = "Authorization: The API key is not known here."
	for _, text := range []string{good, wrong, unknown} {
		if _, status, _ := authorize(a, text, q); status != 503 {
			t.Errorf("without a plan: %d", status)
		}
	}
	if _, status, got := authorize(a, wrongMaster, q); status != 401 || got != words {
		t.Errorf("another key of a master's id without a plan: %d %q", status, got)
	}
	if caller, status, _ := authorize(a, master, q); status != 200 || caller.Name != "key:standalone" {
		t.Errorf("the master without a plan: %d, %+v", status, caller)
	}
	p = &plan.Plan{Pool: plan.Pool{APIKeys: []plan.APIKey{{ID: "a"}, key, {ID: "zero"}}}}
	for _, text := range []string{wrong, unknown, wrongMaster} {
		if _, status, got := authorize(a, text, q); status != 401 || got != words {
			t.Errorf("with a plan: %d %q", status, got)
		}
	}
	if _, status, _ := authorize(a, good, q); status != 200 {
		t.Errorf("the good key: %d", status)
	}
	// Revoked by the next plan.
	p = &plan.Plan{}
	if _, status, got := authorize(a, good, q); status != 401 || got != words {
		t.Errorf("after it was taken out: %d %q", status, got)
	}
}

func TestAKeyEndsAtItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text, key := planKey(t, "ci", func(k *plan.APIKey) { k.ExpiresAt = time.Now().Add(time.Hour) })
		p := &plan.Plan{Pool: plan.Pool{APIKeys: []plan.APIKey{key}}}
		a, q := ingest.PlanKeys(func() *plan.Plan { return p }), ingest.Request{Verb: ingest.VerbRead, Namespace: "shop"}
		time.Sleep(time.Hour - time.Nanosecond)
		if _, status, _ := authorize(a, text, q); status != 200 {
			t.Errorf("just before: %d", status)
		}
		time.Sleep(time.Nanosecond)
		if _, status, _ := authorize(a, text, q); status != 401 {
			t.Errorf("at its time: %d", status)
		}
	})
}
