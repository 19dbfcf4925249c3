package event

import (
	"bytes"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// headers makes a header of names and values in turn, as net/http would.
func headers(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

var (
	plainHeader      = headers("Content-Type", "application/json")
	structuredHeader = headers("Content-Type", "application/cloudevents+json")
	batchHeader      = headers("Content-Type", "application/cloudevents-batch+json")
)

func binaryHeader(pairs ...string) http.Header {
	h := headers("Content-Type", "application/json", "ce-specversion", "1.0", "ce-id", "1", "ce-source", "/s", "ce-type", "t")
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}

// mustParse returns the single event of a request that must be taken.
func mustParse(t *testing.T, header http.Header, body string) *Event {
	t.Helper()
	events, err := Parse("shop", header, []byte(body), Limits{})
	if err != nil {
		t.Fatalf("%.200q is refused: %v", body, err)
	}
	if len(events) != 1 {
		t.Fatalf("%d events, want 1", len(events))
	}
	e := events[0]
	if string(e.Body) != body {
		t.Fatalf("body is %.200q, want the bytes that came", e.Body)
	}
	if e.Namespace != "shop" || e.WebhookID != WebhookID(e.Source, e.ID) || e.Hash == [32]byte{} {
		t.Fatalf("namespace %q, webhook-id %q, hash %x", e.Namespace, e.WebhookID, e.Hash)
	}
	return e
}

// mustRefuse checks that a request is refused with a status and a field, and that nothing of it is echoed.
func mustRefuse(t *testing.T, header http.Header, body string, status int, field string) *Error {
	t.Helper()
	events, err := Parse("shop", header, []byte(body), Limits{})
	var bad *Error
	if !errors.As(err, &bad) {
		t.Fatalf("%.200q gives %v, want an *Error", body, err)
	}
	if events != nil {
		t.Errorf("%d events come with the error", len(events))
	}
	if bad.Status != status || bad.Field != field {
		t.Fatalf("%.200q is refused with %d %s (%s), want %d %s", body, bad.Status, bad.Field, bad.Detail, status, field)
	}
	if strings.Contains(bad.Error(), "SECRET") {
		t.Fatalf("the error echoes the request: %v", bad)
	}
	if !strings.HasSuffix(bad.Detail, ".") {
		t.Errorf("detail is no sentence: %q", bad.Detail)
	}
	return bad
}

func TestModeNames(t *testing.T) {
	for mode, want := range map[Mode]string{ModePlain: "plain", ModeStructured: "structured", ModeBinary: "binary", 0: "unknown"} {
		if got := mode.String(); got != want {
			t.Errorf("mode %d is called %q, want %q", mode, got, want)
		}
	}
}

func TestPlainFields(t *testing.T) {
	e := mustParse(t, headers("Content-Type", "application/json; charset=UTF-8"),
		` {"type":"order.created","id":"evt_1","created_at":"2026-05-24T14:00:00.5+02:00","source":"shop/eu",
		"attributes":{"vip":true,"customer":"cust_42","count":7,"gone":null},"extra":{"kept":[1]},"data":{"a":1}} `)
	if e.Mode != ModePlain || e.ID != "evt_1" || e.Type != "order.created" || e.Source != "shop/eu" || e.Subject != "" || e.Headers != nil {
		t.Errorf("got %+v", e)
	}
	if e.ContentType != "application/json; charset=UTF-8" {
		t.Errorf("content type %q", e.ContentType)
	}
	if want := time.Date(2026, 5, 24, 12, 0, 0, 5e8, time.UTC); e.Time != want {
		t.Errorf("time %v, want %v", e.Time, want)
	}
	if want := []Attribute{{"count", "7"}, {"customer", "cust_42"}, {"vip", "true"}}; !slices.Equal(e.Attributes, want) {
		t.Errorf("attributes %v, want %v", e.Attributes, want)
	}
	if e := mustParse(t, plainHeader, `{"id":"1","type":"t","time":"2026-05-24T12:00:00Z","data":null}`); e.Time.Hour() != 12 {
		t.Errorf("the alias time gives %v", e.Time)
	}
}

// cases PF19, PF21, PF22, PF24, PF25, PF29, PF30, BDY-08, DUP-07: all of these are kept, byte for byte.
func TestPlainKept(t *testing.T) {
	for name, body := range map[string]string{
		"PF19 key order":                `{"id":"1","type":"t","data":{"z":1,"a":2,"m":{"y":0,"b":0}}}`,
		"PF22 spaces":                   `{"id": "1", "type": "t", "data": {"k": "v"}}`,
		"PF24 large integer":            `{"id":"1","type":"t","data":{"id":123456789012345678}}`,
		"PF25 numbers":                  `{"id":"1","type":"t","data":{"ts":1730000000123,"amount":1000000000000000000000,"f":1.0,"e":1E400}}`,
		"PF29 html and no last newline": `{"id":"1","type":"t","data":{"html":"<b>A & B</b>","js":"\u2028"}}`,
		"PF29 last newline":             `{"id":"1","type":"t","data":{}}` + "\n",
		"PF30 JSON in a string":         `{"id":"1","type":"t","data":"{\"a\":1}"}`,
		"duplicate keys in data":        `{"id":"1","type":"t","data":{"a":1,"a":2,"id":3,"id":4}}`,
		"lone surrogate in data":        `{"id":"1","type":"t","data":"\ud800"}`,
		"10,001 levels in data":         `{"id":"1","type":"t","data":` + strings.Repeat("[", 10001) + strings.Repeat("]", 10001) + `}`,
		"other case is another name":    `{"id":"1","ID":2,"Id":null,"type":"t","TYPE":[],"data":1,"Data":2}`,
		"unknown names, twice":          `{"x":1,"x":2,"id":"1","type":"t","data":1,"\ud800":1}`,
		"empty source":                  `{"id":"1","source":"","type":"t","data":1}`,
		"no attributes":                 `{"id":"1","attributes":{},"type":"t","data":1}`,
		"null attributes":               `{"id":"1","attributes":null,"type":"t","data":1}`,
		"written with escapes":          `{"\u0069d":"\u0031","t\u0079pe":"t","data":1}`,
	} {
		t.Run(name, func(t *testing.T) {
			if e := mustParse(t, plainHeader, body); e.ID != "1" || e.Type != "t" || e.Source != "" {
				t.Errorf("id %q, type %q, source %q", e.ID, e.Type, e.Source)
			}
		})
	}
}

// case DUP-07: ids are kept exactly.
func TestPlainIDs(t *testing.T) {
	for encoded, want := range map[string]string{
		`a.b`: "a.b", `a b`: "a b", `../../x`: "../../x", `a/b`: "a/b", `é😀`: "é😀", `x`: "x", `X`: "X", `\u0000`: "\x00",
		`a\r\nX-Evil: 1`: "a\r\nX-Evil: 1", `__proto__`: "__proto__", `' OR 1=1`: "' OR 1=1", `123`: "123",
		strings.Repeat("a", 1024): strings.Repeat("a", 1024),
	} {
		if e := mustParse(t, plainHeader, `{"id":"`+encoded+`","type":"t","data":1}`); e.ID != want {
			t.Errorf("id %q, want %q", e.ID, want)
		}
	}
}

func TestPlainRefused(t *testing.T) {
	event := func(members string) string { return `{"id":"1","type":"t","data":1,` + members + `}` }
	many := strings.Repeat(`"a":1,`, 65)
	for _, c := range []struct{ name, body, field string }{
		{"empty body", ``, "body"},
		{"blank body", " \n", "body"},
		{"byte order mark", "\xef\xbb\xbf" + event(`"x":1`), "body"},
		{"UTF-16", "\xff\xfe{\x00", "body"},
		{"trailing bytes", event(`"x":1`) + "SECRET", "body"},
		{"two documents", event(`"x":1`) + event(`"x":1`), "body"},
		{"cut short", `{"id":"1","type":"t","data":{"a":`, "body"},
		{"cut short before a value", `{"type":"t","id":`, "body"},
		{"cut short after a name", `{"type":"t","id"`, "body"},
		{"name not UTF-8", "{\"\xff\":1}", "body"},
		{"cut short in a string", `{"id":"1","type":"t`, "body"},
		{"a string", `"SECRET"`, "body"},
		{"a bare word", `SECRET`, "body"},
		{"IN11 an array", `[` + event(`"x":1`) + `]`, "body"},
		{"trailing comma", `{"id":"1",}`, "body"},
		{"DUP-08 no id", `{"type":"t","data":1}`, "id"},
		{"DUP-08 null id", `{"id":null,"type":"t","data":1}`, "id"},
		{"DUP-08 number id", `{"id":123,"type":"t","data":1}`, "id"},
		{"DUP-08 array id", `{"id":["1"],"type":"t","data":1}`, "id"},
		{"CEH-04 empty id", `{"id":"","type":"t","data":1}`, "id"},
		{"DUP-07 long id", `{"id":"` + strings.Repeat("a", 1025) + `","type":"t","data":1}`, "id"},
		{"DUP-07 10 kB id", `{"id":"` + strings.Repeat("a", 10000) + `","type":"t","data":1}`, "id"},
		{"BDY-08 id twice", `{"id":"1","id":"1","type":"t","data":1}`, "id"},
		{"id twice, once escaped", `{"id":"1","\u0069d":"2","type":"t","data":1}`, "id"},
		{"id not UTF-8", "{\"id\":\"\xff\",\"type\":\"t\",\"data\":1}", "id"},
		{"id with half a pair", `{"id":"\ud800","type":"t","data":1}`, "id"},
		{"id with a bad escape", `{"id":"\x","type":"t","data":1}`, "id"},
		{"no type", `{"id":"1","data":1}`, "type"},
		{"CEH-04 empty type", `{"id":"1","type":"","data":1}`, "type"},
		{"null type", `{"id":"1","type":null,"data":1}`, "type"},
		{"type twice", event(`"type":"u"`), "type"},
		{"type with half a pair", `{"id":"1","type":"\udc00","data":1}`, "type"},
		{"type with a line break", `{"id":"1","type":"t\n","data":1}`, "type"},
		{"long type", `{"id":"1","type":"` + strings.Repeat("a", 257) + `","data":1}`, "type"},
		{"our own type", `{"id":"1","type":"doorstep.endpoint.disabled","data":1}`, "type"},
		{"our own type, escaped", `{"id":"1","type":"\u0064oorstep.x","data":1}`, "type"},
		{"number source", event(`"source":1`), "source"},
		{"null source", event(`"source":null`), "source"},
		{"source twice", event(`"source":"a","source":"a"`), "source"},
		{"long source", event(`"source":"` + strings.Repeat("a", 2049) + `"`), "source"},
		{"source with half a pair", event(`"source":"\ud800\u0041"`), "source"},
		{"number time", event(`"time":1730000000`), "time"},
		{"bad time", event(`"time":"yesterday SECRET"`), "time"},
		{"bad created_at", event(`"created_at":"2026-02-30T00:00:00Z"`), "created_at"},
		{"time without zone", event(`"created_at":"2026-02-20T00:00:00"`), "created_at"},
		{"null created_at", event(`"created_at":null`), "created_at"},
		{"created_at twice", event(`"created_at":"2026-05-24T12:00:00Z","created_at":"2026-05-24T12:00:00Z"`), "created_at"},
		{"both times", event(`"created_at":"2026-05-24T12:00:00Z","time":"2026-05-24T12:00:00Z"`), "time"},
		{"no data", `{"id":"1","type":"t"}`, "data"},
		{"data twice", event(`"data":2`), "data"},
		{"data not JSON", `{"id":"1","type":"t","data":{"a":SECRET}}`, "data"},
		{"data not UTF-8", "{\"id\":\"1\",\"type\":\"t\",\"data\":\"\xff\"}", "data"},
		{"data with a raw line break", "{\"id\":\"1\",\"type\":\"t\",\"data\":\"a\nb\"}", "data"},
		{"unknown member not JSON", event(`"SECRET":01`), "body"},
		{"attributes no object", event(`"attributes":[]`), "attributes"},
		{"attributes twice", event(`"attributes":{},"attributes":{}`), "attributes"},
		{"attribute name", event(`"attributes":{"SECRET":"x"}`), "attributes"},
		{"empty attribute name", event(`"attributes":{"":"x"}`), "attributes"},
		{"long attribute name", event(`"attributes":{"` + strings.Repeat("a", 65) + `":"x"}`), "attributes"},
		{"attribute twice", event(`"attributes":{"a":"x","b":"","a":"x"}`), "attributes.a"},
		{"attribute twice, once null", event(`"attributes":{"a":"x","a":null}`), "attributes.a"},
		{"attribute is an object", event(`"attributes":{"a":{}}`), "attributes.a"},
		{"attribute is a fraction", event(`"attributes":{"a":1.5}`), "attributes.a"},
		{"attribute has an exponent", event(`"attributes":{"a":1e3}`), "attributes.a"},
		{"attribute not JSON", event(`"attributes":{"a":SECRET}`), "attributes.a"},
		{"attribute with NUL", event(`"attributes":{"a":"\u0000"}`), "attributes.a"},
		{"attribute with half a pair", event(`"attributes":{"a":"\ud800"}`), "attributes.a"},
		{"long attribute", event(`"attributes":{"a":"` + strings.Repeat("a", 8193) + `"}`), "attributes.a"},
		{"too many attributes", event(`"attributes":{` + many[:len(many)-1] + `}`), "attributes"},
	} {
		t.Run(c.name, func(t *testing.T) { mustRefuse(t, plainHeader, c.body, 400, c.field) })
	}
}

func TestIdempotencyKey(t *testing.T) {
	const noID = `{"type":"t","data":1}`
	key := func(values ...string) http.Header {
		h := plainHeader.Clone()
		for _, v := range values {
			h.Add("Idempotency-Key", v)
		}
		return h
	}
	for value, want := range map[string]string{"abc": "abc", `"abc"`: "abc", `"a\"b"`: `a"b`, strings.Repeat("k", 1024): strings.Repeat("k", 1024)} {
		if e := mustParse(t, key(value), noID); e.ID != want {
			t.Errorf("%q gives id %q, want %q", value, e.ID, want)
		}
	}
	if e := mustParse(t, key("abc"), `{"id":"mine","type":"t","data":1}`); e.ID != "mine" {
		t.Errorf("id %q, want the body's", e.ID)
	}
	mustRefuse(t, key("abc"), `{"id":"","type":"t","data":1}`, 400, "id")
	for _, bad := range [][]string{{"a", "b"}, {"a", "a"}, {""}, {`""`}, {`"SECRET`}, {"é"}, {"a\x00"}, {strings.Repeat("k", 1025)}} {
		mustRefuse(t, key(bad...), noID, 400, "Idempotency-Key")
	}
}

// cases BDY-01, BDY-04: the limit is inclusive and counts bytes.
func TestSizeLimit(t *testing.T) {
	event := func(size int, fill string) string {
		const head, tail = `{"id":"1","type":"t","data":"`, `"}`
		room := size - len(head) - len(tail)
		return head + strings.Repeat(fill, room/len(fill)) + strings.Repeat(" ", room%len(fill)) + tail
	}
	for _, fill := range []string{"a", "é", "😀"} {
		mustParse(t, plainHeader, event(262143, fill))
		mustParse(t, plainHeader, event(262144, fill))
		bad := mustRefuse(t, plainHeader, event(262145, fill), 413, "body")
		if !strings.Contains(bad.Detail, "URL") {
			t.Errorf("the way out is not named: %s", bad.Detail)
		}
	}
	mustParse(t, binaryHeader(), strings.Repeat("\xff", 262144))
	mustRefuse(t, binaryHeader(), strings.Repeat("\xff", 262145), 413, "body")
	if _, err := Parse("shop", plainHeader, []byte(event(101, "a")), Limits{MaxPayloadBytes: 100}); err == nil {
		t.Error("a limit of 100 takes 101 bytes")
	}
}

// cases IN7, IN8
func TestContentEncoding(t *testing.T) {
	const body = `{"id":"1","type":"t","data":1}`
	for _, coding := range []string{"identity", "Identity", "", "identity, identity"} {
		h := plainHeader.Clone()
		h.Set("Content-Encoding", coding)
		mustParse(t, h, body)
	}
	for _, coding := range []string{"gzip", "br", "gzip, gzip", "identity, gzip", "SECRET", "x-gzip"} {
		for _, header := range []http.Header{plainHeader, structuredHeader, batchHeader, binaryHeader()} {
			h := header.Clone()
			h.Set("Content-Encoding", coding)
			mustRefuse(t, h, body, 415, "Content-Encoding")
		}
	}
	h := plainHeader.Clone()
	h["Content-Encoding"] = []string{"identity", "gzip"}
	mustRefuse(t, h, body, 415, "Content-Encoding")
}

func TestContentType(t *testing.T) {
	const plain = `{"id":"1","type":"t","data":1}`
	for _, ok := range []string{"application/json", "Application/JSON", "application/json;charset=utf-8", `application/json; charset="UTF-8"; x=y`} {
		if e := mustParse(t, headers("Content-Type", ok), plain); e.ContentType != ok {
			t.Errorf("content type %q, want %q as it came", e.ContentType, ok)
		}
	}
	for _, bad := range []string{
		"", "text/plain", "application/xml", "application/json; charset=latin1", "application/json; charset", "SECRET",
		"application/x-www-form-urlencoded", "application/cloudevents", "application/cloudevents+avro", "application/cloudevents+xml",
		"application/cloudevents-batch+avro", "application/cloudevents+json; charset=utf-16", "application/cloudevents+json; =",
	} {
		h := http.Header{"Content-Type": {bad}}
		mustRefuse(t, h, plain, 415, "Content-Type")
	}
	if bad := mustRefuse(t, http.Header{}, plain, 415, "Content-Type"); !strings.Contains(bad.Detail, "application/cloudevents+json") {
		t.Errorf("the way out is not named: %s", bad.Detail)
	}
	mustRefuse(t, http.Header{"Content-Type": {"application/json", "application/json"}}, plain, 400, "Content-Type")
}

func TestTimes(t *testing.T) {
	for in, want := range map[string]string{
		"2026-05-24T12:00:00Z":           "2026-05-24T12:00:00Z",
		"2026-05-24t12:00:00z":           "2026-05-24T12:00:00Z",
		"2026-05-24T12:00:00.123456789Z": "2026-05-24T12:00:00.123456789Z",
		"2026-05-24T00:30:00+05:30":      "2026-05-23T19:00:00Z",
		"2016-12-31T23:59:60Z":           "2017-01-01T00:00:00Z",
	} {
		got, err := parseTime("time", in)
		if err != nil {
			t.Errorf("%s is refused: %v", in, err)
		} else if s := got.Format(time.RFC3339Nano); s != want {
			t.Errorf("%s is read as %s, want %s", in, s, want)
		}
	}
	for _, bad := range []string{"", "now", "2026-05-24", "2026-05-24 12:00:00Z", "2026-05-24T12:00Z", "2026-05-24T1:00:00Z", "2026-05-24T1:00:00.5Z", "2026-05-24T12:00:00+01:60", "2026-05-24T12:00:00,5Z",
		"2026-05-24T25:00:00Z", "2026-05-24T12:00:61Z", "2026-05-24T12:00:00", "2026-05-24T12:00:00+24:00", "2026-05-24T12:00:00." + strings.Repeat("1", 80) + "Z"} {
		if _, err := parseTime("time", bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// TestTextsOutliveTheBody shows that only Body shares memory with the request (case PF31: pooled buffers).
func TestTextsOutliveTheBody(t *testing.T) {
	body := []byte(`{"id":"evt_1","type":"order.created","source":"shop","attributes":{"customer":"c1"},"data":1}`)
	events, err := Parse("shop", plainHeader, body, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	copy(body, bytes.Repeat([]byte("#"), len(body)))
	e := events[0]
	if e.ID != "evt_1" || e.Type != "order.created" || e.Source != "shop" || e.Attributes[0] != (Attribute{"customer", "c1"}) {
		t.Errorf("texts changed with the body: %+v", e)
	}
}
