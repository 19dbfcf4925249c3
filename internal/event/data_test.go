package event

import (
	"net/http"
	"strings"
	"testing"
)

func TestData(t *testing.T) {
	plain := func(data string) string { return `{"id":"1","type":"t","data":` + data + `}` }
	structured := func(members string) string {
		return `{"specversion":"1.0","id":"1","source":"/s","type":"t"` + members + `}`
	}
	binary := func(contentType string) http.Header {
		h := http.Header{"Ce-Specversion": {"1.0"}, "Ce-Id": {"1"}, "Ce-Source": {"/s"}, "Ce-Type": {"t"}}
		if contentType != "" {
			h.Set("Content-Type", contentType)
		}
		return h
	}
	asPlain, asStructured := http.Header{"Content-Type": {typePlain}}, http.Header{"Content-Type": {typeStructured}}
	for _, tc := range []struct {
		name   string
		header http.Header
		body   string
		want   string
		json   bool
		media  string
		null   bool
	}{
		{"plain", asPlain, plain(`{"a": 1,  "a":2}`), `{"a": 1,  "a":2}`, true, typePlain, false},
		{"plain, null", asPlain, plain(`null`), `null`, true, typePlain, true},
		{"plain, blanks around", asPlain, plain("\n 7 \n"), `7`, true, typePlain, false},
		{"plain, before the id", asPlain, `{"data":[1,2],"id":"1","type":"t"}`, `[1,2]`, true, typePlain, false},
		{"plain, a member of that name within", asPlain, `{"x":{"data":1},"id":"1","type":"t","data":2}`, `2`, true, typePlain, false},
		{"plain, the name escaped", asPlain, `{"id":"1","type":"t","d\u0061ta":2}`, `2`, true, typePlain, false},
		{"plain, CloudEvents members mean nothing", asPlain, `{"id":"1","type":"t","data":2,"data_base64":"AA==","datacontenttype":"text/xml"}`, `2`, true, typePlain, false},
		{"structured", asStructured, structured(`,"data":{"a":1}`), `{"a":1}`, true, typePlain, false},
		{"structured, with a type", asStructured, structured(`,"data":"<a/>","datacontenttype":"Text/XML; charset=utf-8"`), `"<a/>"`, true, "text/xml", false},
		{"structured, none", asStructured, structured(``), ``, true, typePlain, true},
		{"structured, base64", asStructured, structured(`,"data_base64":"AP8=","datacontenttype":"image/png"`), "\x00\xff", false, "image/png", false},
		{"structured, base64 escaped", asStructured, structured(`,"data_base64":"\u0041P8="`), "\x00\xff", false, "", false},
		{"structured, base64 of JSON", asStructured, structured(`,"data_base64":"bnVsbA==","datacontenttype":"application/json"`), "null", true, typePlain, true},
		{"structured, base64 null", asStructured, structured(`,"data_base64":null,"data":1`), "1", true, typePlain, false},
		{"binary, JSON", binary("application/vnd.shop+json; charset=utf-8"), `{"a":1}`, `{"a":1}`, true, "application/vnd.shop+json", false},
		{"binary, XML", binary("text/xml"), `<a/>`, `<a/>`, false, "text/xml", false},
		{"binary, no type", binary(""), "\x00", "\x00", false, "", false},
		{"binary, a malformed type", binary("Text/Plain;;"), "x", "x", false, "text/plain", false},
		{"binary, empty", binary("application/json"), ``, ``, true, typePlain, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			events, err := Parse("n", tc.header, []byte(tc.body), Limits{})
			if err != nil {
				t.Fatal(err)
			}
			d := events[0].Data()
			if string(d.Bytes) != tc.want || d.JSON != tc.json || d.MediaType != tc.media || d.Null() != tc.null {
				t.Errorf("got %q, JSON %t, type %q, null %t; want %q, %t, %q, %t", d.Bytes, d.JSON, d.MediaType, d.Null(), tc.want, tc.json, tc.media, tc.null)
			}
		})
	}
	t.Run("an element of a batch", func(t *testing.T) {
		body := "[" + structured(`,"data":1`) + " , " + structured(`,"data":"two"`) + "]"
		events, err := Parse("n", http.Header{"Content-Type": {typeBatch}}, []byte(body), Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if got := string(events[1].Data().Bytes); got != `"two"` {
			t.Errorf("the data are %q", got)
		}
	})
	t.Run("nested deep", func(t *testing.T) {
		data := strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)
		e := &Event{Mode: ModePlain, Body: []byte(plain(data))}
		if got := e.Data().Bytes; string(got) != data {
			t.Errorf("%d bytes of data, want %d", len(got), len(data))
		}
	})
}
