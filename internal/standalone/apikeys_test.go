package standalone

import (
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/ingest"
)

// A key of the pool's Secret is good for what its entry says from within two seconds of
// the edit on, and no longer than that after it is taken out. The data folder's key goes on.
func TestAPIKeysOfThePool(t *testing.T) {
	s, rec := newSite(t), newReceiver(t)
	s.usual(rec.URL)
	text, key, err := ingest.NewAPIKey("ci")
	if err != nil {
		t.Fatal(err)
	}
	hash := hex.EncodeToString(key.SHA256[:])
	s.write("pool.yaml", poolYAML+"  ingest: {apiKeysSecretRef: {name: api-keys}}\n")
	secret := func(entries string) string {
		return "apiVersion: v1\nkind: Secret\nmetadata: {name: api-keys, namespace: doorstep-system}\nstringData:\n" + entries
	}
	entry := func(verbs string) string {
		return "  ci: |\n    sha256: \"" + hash + "\"\n    namespaces: [shop]\n    verbs: [" + verbs + "]\n"
	}
	r := s.start()
	as := func(key string) func(*http.Request) {
		return func(q *http.Request) { q.Header.Set("Authorization", "Bearer "+key) }
	}
	event := []byte(`{"id":"1","type":"a","data":1}`)
	var took []time.Duration
	until := func(what string, want int, call func() int, edit func()) {
		t.Helper()
		edited := time.Now()
		edit()
		await(t, what, func() bool { return call() == want })
		took = append(took, time.Since(edited))
	}
	send := func() int { status, _ := r.call("POST", eventsPath, event, as(text)); return status }
	read := func() int { status, _ := r.call("GET", eventsPath, nil, as(text)); return status }

	if got := read(); got != 401 {
		t.Errorf("before there is a Secret: %d", got)
	}
	until("the key to be known", 200, read, func() { s.write("keys.yaml", secret(entry("read"))) })
	if got := send(); got != 403 {
		t.Errorf("a send with a key to read: %d", got)
	}
	if status, _ := r.call("GET", "/v1/namespaces/bank/events", nil, as(text)); status != 403 {
		t.Errorf("another namespace: %d", status)
	}
	until("the key to send", 202, send, func() { s.write("keys.yaml", secret(entry("read, send"))) })
	until("the key to be revoked", 401, read, func() { s.write("keys.yaml", secret("  other: |\n    nothing\n")) })
	if status, _ := r.call("GET", eventsPath, nil); status != 200 {
		t.Errorf("the data folder's key: %d", status)
	}
	slices.Sort(took)
	if took[1] > live {
		t.Errorf("edits are in force after %v, want within %v", took, live)
	}
	problem := "Secret api-keys, entry other: it must be YAML"
	if log := r.log.String(); !strings.Contains(log, problem) || strings.Contains(log, hash) || strings.Contains(log, text) {
		t.Errorf("the log has not %q, or has the key or its hash:\n%s", problem, log)
	}
}
