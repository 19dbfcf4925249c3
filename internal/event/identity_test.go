package event

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestWebhookIDVectors(t *testing.T) {
	raw, err := os.ReadFile("testdata/webhook-id-vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct{ Source, ID, WebhookID string }
	if err := json.Unmarshal(raw, &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors) < 6 {
		t.Fatalf("%d vectors, want at least 6", len(vectors))
	}
	for _, v := range vectors {
		if got := WebhookID(v.Source, v.ID); got != v.WebhookID {
			t.Errorf("WebhookID(%q, %q) = %s, want %s", v.Source, v.ID, got, v.WebhookID)
		}
	}
}

// case DUP-07: whatever the id, what goes into headers and paths is safe, and no two ids share it.
func TestWebhookIDIsSafeForEveryID(t *testing.T) {
	safe := regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	ids := []string{
		"a.b", "a b", "../../x", "a/b", "é😀", "x", "X", strings.Repeat("a", 64), strings.Repeat("a", 65),
		strings.Repeat("a", 256), strings.Repeat("a", 1024), "a\x00b", "a\r\nX-Evil: 1", "__proto__", "' OR 1=1",
		".", "..", "msg_" + strings.Repeat("a", 26), "msg_" + strings.Repeat("a", 25), "msg_" + strings.Repeat("1", 26),
	}
	seen := map[string]string{}
	for _, id := range ids {
		got := WebhookID("", id)
		if !safe.MatchString(got) {
			t.Errorf("WebhookID of %q is %q, not safe in a header", id, got)
		}
		if other, taken := seen[got]; taken {
			t.Errorf("%q and %q share %s", id, other, got)
		}
		seen[got] = id
	}
	for _, kept := range []string{"__proto__", "x", "X", strings.Repeat("a", 64), "msg_" + strings.Repeat("a", 25), "msg_" + strings.Repeat("1", 26)} {
		if got := WebhookID("", kept); got != kept {
			t.Errorf("WebhookID of %q is %q, want the id itself", kept, got)
		}
	}
}

func TestHashTellsWhatDiffers(t *testing.T) {
	base := func() *Event {
		return &Event{Mode: ModeBinary, ContentType: "application/json", ID: "1", Source: "s", Type: "t", Subject: "u", Body: []byte("x")}
	}
	sum := func(change func(*Event), dataschema string) [32]byte {
		e := base()
		change(e)
		hashEvent(e, dataschema)
		return e.Hash
	}
	same := sum(func(*Event) {}, "d")
	if same != sum(func(e *Event) { e.Namespace = "other"; e.Attributes = []Attribute{{"a", "b"}} }, "d") {
		t.Error("the hash depends on what it must not")
	}
	for name, change := range map[string]func(*Event){
		"content type": func(e *Event) { e.ContentType = "text/plain" },
		"id":           func(e *Event) { e.ID = "2" },
		"source":       func(e *Event) { e.Source = "z" },
		"type":         func(e *Event) { e.Type = "z" },
		"subject":      func(e *Event) { e.Subject = "z" },
		"body":         func(e *Event) { e.Body = []byte("y") },
		"moved byte":   func(e *Event) { e.ID, e.Source = "1s", "" },
		"mode":         func(e *Event) { e.Mode = ModeStructured },
	} {
		if sum(change, "d") == same {
			t.Errorf("another %s gives the same hash", name)
		}
	}
	if sum(func(*Event) {}, "e") == same {
		t.Error("another dataschema gives the same hash")
	}
}
