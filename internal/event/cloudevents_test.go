package event

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// cases CEH-01, IN12
func TestStructuredFields(t *testing.T) {
	const body = `{"specversion":"1.0","id":"A 1","source":"/s","type":"t","subject":"Euro \u20ac","time":"2026-05-24T12:00:00Z",
		"datacontenttype":"text/xml","dataschema":"https://e.test/s","myext":"ü","n":-5,"b":false,"unset":null,"data_base64":"/+8="}`
	for _, contentType := range []string{"application/cloudevents+json", "application/cloudevents+json; charset=utf-8", "APPLICATION/CloudEvents+JSON"} {
		h := headers("Content-Type", contentType, "ce-id", "a repetition is not read")
		e := mustParse(t, h, body)
		if e.Mode != ModeStructured || e.ContentType != contentType || e.Headers != nil {
			t.Errorf("mode %v, content type %q, headers %v", e.Mode, e.ContentType, e.Headers)
		}
		if e.ID != "A 1" || e.Source != "/s" || e.Type != "t" || e.Subject != "Euro €" || e.Time != time.Date(2026, 5, 24, 12, 0, 0, 0, time.UTC) {
			t.Errorf("got %+v", e)
		}
		want := []Attribute{{"b", "false"}, {"dataschema", "https://e.test/s"}, {"myext", "ü"}, {"n", "-5"}, {"subject", "Euro €"}}
		if !slices.Equal(e.Attributes, want) {
			t.Errorf("attributes %v, want %v", e.Attributes, want)
		}
	}
}

// cases IN13, CEH-05, BDY-08
func TestStructuredKept(t *testing.T) {
	for name, rest := range map[string]string{
		"IN13 the least":               ``,
		"CEH-05 null data":             `,"data":null`,
		"CEH-05 JSON in a string":      `,"data":"{\"a\":1}"`,
		"null attributes":              `,"subject":null,"time":null,"dataschema":null,"datacontenttype":null,"ext":null`,
		"null data_base64 beside data": `,"data_base64":null,"data":1`,
		"empty data_base64":            `,"data_base64":""`,
		"escaped data_base64":          `,"data_base64":"\/+8="`,
		"empty extension":              `,"ext":""`,
		"64 extensions":                "," + extensions(64),
		"duplicate keys in data":       `,"data":{"a":1,"a":1e400}`,
		"10,001 levels":                `,"data":` + strings.Repeat("[", 10001) + strings.Repeat("]", 10001),
	} {
		t.Run(name, func(t *testing.T) {
			e := mustParse(t, structuredHeader, `{"specversion":"1.0","id":"1","source":"/s","type":"t"`+rest+`}`)
			if !e.Time.IsZero() || e.Subject != "" {
				t.Errorf("time %v, subject %q", e.Time, e.Subject)
			}
		})
	}
}

func TestStructuredRefused(t *testing.T) {
	event := func(members string) string {
		return `{"specversion":"1.0","id":"1","source":"/s","type":"t",` + members + `}`
	}
	for _, c := range []struct{ name, body, field string }{
		{"CEH-04 no specversion", `{"id":"1","source":"/s","type":"t"}`, "specversion"},
		{"CEH-04 specversion 0.3", `{"specversion":"0.3","id":"1","source":"/s","type":"t"}`, "specversion"},
		{"CEH-04 specversion 1.1", `{"specversion":"1.1","id":"1","source":"/s","type":"t"}`, "specversion"},
		{"specversion as a number", `{"specversion":1.0,"id":"1","source":"/s","type":"t"}`, "specversion"},
		{"specversion twice", event(`"specversion":"1.0"`), "specversion"},
		{"CEH-04 no id", `{"specversion":"1.0","source":"/s","type":"t"}`, "id"},
		{"CEH-04 null id", `{"specversion":"1.0","id":null,"source":"/s","type":"t"}`, "id"},
		{"CEH-04 empty id", `{"specversion":"1.0","id":"","source":"/s","type":"t"}`, "id"},
		{"CEH-04 no source", `{"specversion":"1.0","id":"1","type":"t"}`, "source"},
		{"CEH-04 empty source", `{"specversion":"1.0","id":"1","source":"","type":"t"}`, "source"},
		{"CEH-04 no type", `{"specversion":"1.0","id":"1","source":"/s"}`, "type"},
		{"CEH-04 empty type", `{"specversion":"1.0","id":"1","source":"/s","type":""}`, "type"},
		{"our own type", `{"specversion":"1.0","id":"1","source":"/s","type":"doorstep.x"}`, "type"},
		{"id with half a pair", `{"specversion":"1.0","id":"\ud800","source":"/s","type":"t"}`, "id"},
		{"id twice, once null", event(`"id":null`), "id"},
		{"CEH-05 data and data_base64", event(`"data":1,"data_base64":"AA=="`), "data_base64"},
		{"null data and data_base64", event(`"data_base64":"AA==","data":null`), "data_base64"},
		{"data_base64 no string", event(`"data_base64":1`), "data_base64"},
		{"data_base64 no base64", event(`"data_base64":"SECRET!!"`), "data_base64"},
		{"data_base64 without padding", event(`"data_base64":"AA"`), "data_base64"},
		{"data_base64 padded inside", event(`"data_base64":"` + strings.Repeat("A", 1022) + `==AAAA"`), "data_base64"},
		{"data twice", event(`"data":1,"data":1`), "data"},
		{"data not UTF-8", event("\"data\":\"\xff\""), "data"},
		{"empty subject", event(`"subject":""`), "subject"},
		{"number subject", event(`"subject":1`), "subject"},
		{"bad time", event(`"time":"now"`), "time"},
		{"empty dataschema", event(`"dataschema":""`), "dataschema"},
		{"empty datacontenttype", event(`"datacontenttype":""`), "datacontenttype"},
		{"null misspelt", event(`"subject":nil`), "subject"},
		{"no comma", `{"specversion":"1.0" "id":"1"}`, "body"},
		{"IN12 upper-case name", event(`"MyExt":"x"`), "body"},
		{"name with an underscore", event(`"my_ext":"x"`), "body"},
		{"object extension", event(`"ext":{}`), "ext"},
		{"extension twice", event(`"ext":"a","ext":"b"`), "ext"},
		{"extension with a line break", event(`"ext":"a\nb"`), "ext"},
		{"too many extensions", event(extensions(65)), "body"},
		{"too many with the subject", event(`"subject":"s",` + extensions(64)), "body"},
		{"a batch", `[` + event(`"data":1`) + `]`, "body"},
		{"trailing bytes", event(`"data":1`) + "x", "body"},
		{"byte order mark", "\xef\xbb\xbf" + event(`"data":1`), "body"},
		{"empty body", "", "body"},
	} {
		t.Run(c.name, func(t *testing.T) { mustRefuse(t, structuredHeader, c.body, 400, c.field) })
	}
}

// extensions returns n members of different names.
func extensions(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(`"x%d":1`, i)
	}
	return strings.Join(list, ",")
}

// case CEH-02, IN11
func TestBatch(t *testing.T) {
	element := func(id string) string {
		return `{ "specversion":"1.0","id":"` + id + `","source":"/s","type":"t","data":{"b":1, "a":2} }`
	}
	for _, none := range []string{`[]`, " [ ] \n"} {
		events, err := Parse("shop", batchHeader, []byte(none), Limits{})
		if err != nil || len(events) != 0 {
			t.Errorf("%q gives %d events, %v", none, len(events), err)
		}
	}
	// case CEH-06: the same identity twice is for the queue to see.
	elements := []string{element("1"), element("2"), element("1")}
	events, err := Parse("shop", batchHeader, []byte(" [ "+strings.Join(elements, " ,\n ")+" ] "), Limits{})
	if err != nil || len(events) != 3 {
		t.Fatalf("%d events, %v", len(events), err)
	}
	for i, e := range events {
		if string(e.Body) != elements[i] || e.Mode != ModeStructured || e.ContentType != "application/cloudevents+json" || e.Namespace != "shop" {
			t.Errorf("element %d is %+v", i, e)
		}
		if cap(e.Body) != len(e.Body) {
			t.Errorf("an append to element %d would write into its neighbour", i)
		}
		alone := mustParse(t, structuredHeader, elements[i])
		if e.Hash != alone.Hash || e.WebhookID != alone.WebhookID {
			t.Errorf("element %d is another event than the same bytes alone", i)
		}
	}
}

func TestBatchRefused(t *testing.T) {
	const good = `{"specversion":"1.0","id":"1","source":"/s","type":"t"}`
	for _, c := range []struct{ name, body, field string }{
		{"CEH-02 second without type", `[` + good + `,{"specversion":"1.0","id":"2","source":"/s"}]`, "[1].type"},
		{"third with a bad id", `[` + good + `,` + good + `,{"specversion":"1.0","id":3}]`, "[2].id"},
		{"element no object", `[` + good + `,[]]`, "[1]"},
		{"element null", `[null]`, "[0]"},
		{"element with a bad name", `[{"SECRET":1}]`, "[0]"},
		{"element data not JSON", `[{"data":x}]`, "[0].data"},
		{"an object", good, "body"},
		{"not closed", `[` + good, "body"},
		{"trailing comma", `[` + good + `,]`, "[1]"},
		{"cut short after a comma", `[` + good + `,`, "[1]"},
		{"no comma", `[` + good + good + `]`, "body"},
		{"trailing bytes", `[` + good + `]]`, "body"},
		{"empty body", ``, "body"},
	} {
		t.Run(c.name, func(t *testing.T) { mustRefuse(t, batchHeader, c.body, 400, c.field) })
	}
}

func TestBatchLimits(t *testing.T) {
	const one = `{"specversion":"1.0","id":"1","source":"/s","type":"t"}`
	batch := func(n int) string { return `[` + strings.Repeat(one+",", n-1) + one + `]` }
	if events, err := Parse("shop", batchHeader, []byte(batch(1000)), Limits{}); err != nil || len(events) != 1000 {
		t.Errorf("1,000 elements give %d events, %v", len(events), err)
	}
	mustRefuse(t, batchHeader, batch(1001), 413, "body")
	mustRefuse(t, batchHeader, `[`+strings.Repeat(" ", 4<<20)+`]`, 413, "body")
	if _, err := Parse("shop", batchHeader, []byte(`[`+strings.Repeat(" ", 4<<20-2)+`]`), Limits{}); err != nil {
		t.Errorf("4 MiB are refused: %v", err)
	}
	large := strings.Replace(one, `"t"`, `"t","data":"`+strings.Repeat("a", 262144)+`"`, 1)
	mustRefuse(t, batchHeader, `[`+one+`,`+large+`]`, 413, "[1]")
}

// cases IN12, IN13, BDY-08
func TestBinaryFields(t *testing.T) {
	h := binaryHeader("Content-Type", "text/xml", "ce-subject", "Z%C3%BCrich", "ce-MyExt", `"a b"`, "ce-time", "2026-05-24T12:00:00Z", "ce-dataschema", "https://e.test/s")
	e := mustParse(t, h, "\xef\xbb\xbf\xff\x00 not JSON")
	if e.Mode != ModeBinary || e.ContentType != "text/xml" || e.ID != "1" || e.Source != "/s" || e.Type != "t" || e.Subject != "Zürich" || e.Time.Year() != 2026 {
		t.Errorf("got %+v", e)
	}
	if want := []Attribute{{"dataschema", "https://e.test/s"}, {"myext", "a b"}, {"subject", "Zürich"}}; !slices.Equal(e.Attributes, want) {
		t.Errorf("attributes %v, want %v", e.Attributes, want)
	}
	want := []Header{{"ce-dataschema", "https://e.test/s"}, {"ce-id", "1"}, {"ce-myext", `"a b"`}, {"ce-source", "/s"}, {"ce-specversion", "1.0"},
		{"ce-subject", "Z%C3%BCrich"}, {"ce-time", "2026-05-24T12:00:00Z"}, {"ce-type", "t"}}
	if !slices.Equal(e.Headers, want) {
		t.Errorf("headers %v, want %v", e.Headers, want)
	}

	h = binaryHeader()
	h.Del("Content-Type")
	if e := mustParse(t, h, ""); e.ContentType != "" || e.Attributes != nil {
		t.Errorf("the least event gives %+v", e)
	}
	if e := mustParse(t, binaryHeader("ce-id", "a%0D%0Ab%00"), ""); e.ID != "a\r\nb\x00" || strings.ContainsAny(e.WebhookID, "\r\n\x00") {
		t.Errorf("id %q, webhook-id %q", e.ID, e.WebhookID)
	}
}

// case CEH-03: a quoted string is undone, then one round of percent-decoding.
func TestBinaryHeaderValues(t *testing.T) {
	for value, want := range map[string]string{
		"Euro%20%E2%82%AC%20%F0%9F%98%80": "Euro € 😀",
		"%e2%82%ac":                       "€",
		"%2541":                           "%41",
		`"a\"b"`:                          `a"b`,
		`"a\\b"`:                          `a\b`,
		`"%22"`:                           `"`,
		`a"b`:                             `a"b`,
		`a b`:                             `a b`,
		"Zürich":                          "Zürich",
	} {
		if e := mustParse(t, binaryHeader("ce-subject", value), ""); e.Subject != want {
			t.Errorf("%s is read as %q, want %q", value, e.Subject, want)
		}
	}
	for _, bad := range []string{"%C0%A0", "%ED%A0%80", "%", "%4", "%zz", "100%", "\xff", `"a`, `"a\"`, `"a"b"`, `"a\"b"c"`, `"`, "", `""`, "a\nb", "%0A", "%00", "%C2%85"} {
		mustRefuse(t, binaryHeader("ce-subject", bad), "", 400, "ce-subject")
	}
}

func TestBinaryRefused(t *testing.T) {
	without := func(name string) http.Header {
		h := binaryHeader()
		h.Del(name)
		return h
	}
	with := func(name string, values ...string) http.Header {
		h := binaryHeader()
		h[name] = values
		return h
	}
	crowd := binaryHeader()
	for i := range 65 {
		crowd.Set(fmt.Sprintf("ce-x%d", i), "1")
	}
	for _, c := range []struct {
		name   string
		header http.Header
		field  string
	}{
		{"IN12 no type", without("ce-type"), "ce-type"},
		{"no id", without("ce-id"), "ce-id"},
		{"no source", without("ce-source"), "ce-source"},
		{"no specversion", without("ce-specversion"), "ce-specversion"},
		{"CEH-04 specversion 0.3", binaryHeader("ce-specversion", "0.3"), "ce-specversion"},
		{"empty id", with("Ce-Id", ""), "ce-id"},
		{"quoted empty id", binaryHeader("ce-id", `""`), "ce-id"},
		{"empty source", with("Ce-Source", ""), "ce-source"},
		{"empty type", with("Ce-Type", ""), "ce-type"},
		{"long id", binaryHeader("ce-id", strings.Repeat("a", 1025)), "ce-id"},
		{"two ids", with("Ce-Id", "1", "2"), "ce-id"},
		{"two equal ids", with("Ce-Id", "1", "1"), "ce-id"},
		{"two ids in two cases", with("ce-id", "1"), "ce-id"},
		{"two extensions", with("Ce-Ext", "1", "2"), "ce-ext"},
		{"datacontenttype", binaryHeader("ce-datacontenttype", "text/xml"), "ce-datacontenttype"},
		{"named data", binaryHeader("ce-data", "x"), "ce-data"},
		{"name with a dash", binaryHeader("ce-SECRET-x", "x"), "ce-*"},
		{"no name", binaryHeader("ce-", "x"), "ce-*"},
		{"bad time", binaryHeader("ce-time", "now"), "ce-time"},
		{"our own type", binaryHeader("ce-type", "doorstep.x"), "ce-type"},
		{"our own type, encoded", binaryHeader("ce-type", "%64oorstep.x"), "ce-type"},
		{"type with a line break", binaryHeader("ce-type", "a%0Ab"), "ce-type"},
		{"header with NUL", with("Ce-Ext", "a\x00"), "ce-ext"},
		{"too many", crowd, "ce-*"},
		{"control in Content-Type", with("Content-Type", "a\x01"), "Content-Type"},
	} {
		t.Run(c.name, func(t *testing.T) { mustRefuse(t, c.header, "{}", 400, c.field) })
	}
}

// case CEH-06
func TestIdentityIsSourceAndID(t *testing.T) {
	body := func(source string) string {
		return `{"specversion":"1.0","id":"1","source":"` + source + `","type":"t"}`
	}
	a, b := mustParse(t, structuredHeader, body("/a")), mustParse(t, structuredHeader, body("/b"))
	again := mustParse(t, structuredHeader, body("/a"))
	if a.WebhookID == b.WebhookID || a.WebhookID != again.WebhookID || a.Hash != again.Hash || a.Hash == b.Hash {
		t.Errorf("webhook-ids %s %s %s", a.WebhookID, b.WebhookID, again.WebhookID)
	}
}
