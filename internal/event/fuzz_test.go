package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func FuzzParse(f *testing.F) {
	for _, body := range []string{
		`{"id":"1","type":"t","data":1}`, `{"specversion":"1.0","id":"1","source":"/s","type":"t","data_base64":"AA=="}`,
		`[{"specversion":"1.0","id":"1","source":"/s","type":"t","ext":1}]`, `{"id":"\ud800`, "\xef\xbb\xbf{}", `[]`,
		`{"id":"1","type":"t","created_at":"2026-05-24T12:00:00Z","attributes":{"a":"b","c":null,"d":-1},"data":{"a":[1e400]}}`,
	} {
		for _, contentType := range []string{"application/json", "application/cloudevents+json", "application/cloudevents-batch+json", "text/plain", ""} {
			f.Add(contentType, "", "", []byte(body))
			f.Add(contentType, "a%20b", `"t"`, []byte(body))
		}
	}
	f.Fuzz(func(t *testing.T, contentType, id, typ string, body []byte) {
		h := http.Header{"Content-Type": {contentType}, "Idempotency-Key": {id}}
		if id != "" {
			h = http.Header{"Content-Type": {contentType}, "Ce-Id": {id}, "Ce-Type": {typ}, "Ce-Source": {"/s"}, "Ce-Specversion": {"1.0"}, "Ce-Ext": {typ}}
		}
		before := bytes.Clone(body)
		events, err := Parse("shop", h, body, Limits{MaxPayloadBytes: 4096, MaxBatchEvents: 10, MaxBatchBytes: 8192})
		if !bytes.Equal(body, before) {
			t.Fatal("the body was written to")
		}
		if err != nil {
			checkError(t, err)
			return
		}
		for _, e := range events {
			checkEvent(t, e, body)
		}
		if len(events) == 1 && events[0].ContentType != typeStructured && !bytes.Equal(events[0].Body, body) {
			t.Fatal("the body of a single event is not what came")
		}
	})
}

func checkError(t *testing.T, err error) {
	var bad *Error
	if !errors.As(err, &bad) {
		t.Fatalf("%T is no *Error", err)
	}
	if !slices.Contains([]int{400, 413, 415}, bad.Status) || bad.Field == "" || bad.Detail == "" {
		t.Fatalf("incomplete error %+v", bad)
	}
	if !utf8.ValidString(bad.Error()) || strings.ContainsFunc(bad.Error(), unicode.IsControl) {
		t.Fatalf("error %q can't be printed", bad.Error())
	}
}

func checkEvent(t *testing.T, e *Event, body []byte) {
	if e.ID == "" || len(e.ID) > maxIDBytes || len(e.Source) > maxSourceBytes || !utf8.ValidString(e.ID+e.Source) {
		t.Fatalf("identity %q %q", e.Source, e.ID)
	}
	if ValidType(e.Type) != nil || Reserved(e.Type) {
		t.Fatalf("type %q", e.Type)
	}
	if !isSafeID(e.WebhookID) {
		t.Fatalf("webhook-id %q", e.WebhookID)
	}
	if !bytes.Contains(body, e.Body) || e.Mode != ModeBinary && !json.Valid(e.Body) && depth(e.Body) < 10000 {
		t.Fatalf("body %q", e.Body)
	}
	for i, a := range e.Attributes {
		if !validAttributeName(a.Name) || hasControl(a.Value) || !utf8.ValidString(a.Value) || i > 0 && e.Attributes[i-1].Name >= a.Name {
			t.Fatalf("attributes %q", e.Attributes)
		}
	}
}

// case IN12: an event has the same identity, time and attributes in structured and in binary mode.
func TestStructuredAndBinaryAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.Rune().Filter(func(r rune) bool {
			return r != utf8.RuneError && !unicode.IsControl(r)
		}))
		nonEmpty := func(label string, most int) string {
			return text.Filter(func(s string) bool { return s != "" && len(s) <= most }).Draw(t, label)
		}
		members := map[string]string{
			"specversion": "1.0", "id": nonEmpty("id", 1024), "source": nonEmpty("source", 2048),
			"type": rapid.StringMatching(`[a-z]{1,8}(\.[a-zé%" ]{1,8}){0,3}x`).Draw(t, "type"),
		}
		if rapid.Bool().Draw(t, "has subject") {
			members["subject"] = nonEmpty("subject", 1024)
		}
		if rapid.Bool().Draw(t, "has time") {
			members["time"] = rapid.SampledFrom([]string{"2026-05-24T12:00:00Z", "2026-05-24T12:00:00.25+02:00"}).Draw(t, "time")
		}
		for i := range rapid.IntRange(0, 5).Draw(t, "extensions") {
			members[fmt.Sprintf("ext%d", i)] = text.Draw(t, "extension")
		}

		body, err := json.Marshal(members)
		if err != nil {
			t.Fatal(err)
		}
		binary := http.Header{}
		for name, value := range members {
			binary.Set("ce-"+name, encodeHeaderValue(value, rapid.Bool().Draw(t, "quoted")))
		}
		a, err := Parse("shop", structuredHeader, body, Limits{})
		if err != nil {
			t.Fatalf("structured: %v", err)
		}
		b, err := Parse("shop", binary, nil, Limits{})
		if err != nil {
			t.Fatalf("binary: %v", err)
		}
		if a[0].WebhookID != b[0].WebhookID || a[0].ID != b[0].ID || a[0].Source != b[0].Source || a[0].Type != b[0].Type || a[0].Subject != b[0].Subject || a[0].Time != b[0].Time {
			t.Fatalf("structured %+v\nbinary %+v", a[0], b[0])
		}
		if a[0].ID != members["id"] || a[0].Source != members["source"] || a[0].Type != members["type"] {
			t.Fatalf("sent %q, read %+v", members, a[0])
		}
		if !slices.Equal(a[0].Attributes, b[0].Attributes) {
			t.Fatalf("structured %q\nbinary %q", a[0].Attributes, b[0].Attributes)
		}
	})
}

// encodeHeaderValue encodes as CloudEvents 1.0 (HTTP binding, 3.1.3.2) says, and may quote the result.
func encodeHeaderValue(value string, quoted bool) string {
	var b strings.Builder
	for i := range len(value) {
		if c := value[i]; c <= ' ' || c > '~' || c == '"' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	if !quoted {
		return b.String()
	}
	return `"` + strings.ReplaceAll(b.String(), `\`, `\\`) + `"`
}
