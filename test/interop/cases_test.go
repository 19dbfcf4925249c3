package interop

import (
	"fmt"
	"net/http"
	"strings"
)

// message is an event to post. Type and id hold the mode, so that each mode has its
// own events and endpoints.
type message struct {
	name string
	// contentType is application/json when empty.
	contentType string
	// ce are the ce- headers of binary mode without type and id.
	ce map[string]string
	// body makes the request's body, for an id and a type.
	body func(id, typ string) string
}

// plain is a plain event with the given text as its data.
func plain(data string) func(id, typ string) string {
	return func(id, typ string) string { return fmt.Sprintf(`{"id":%q,"type":%q,"data":%s}`, id, typ, data) }
}

func fixed(body string) func(id, typ string) string {
	return func(string, string) string { return body }
}

var binaryHeaders = map[string]string{"Ce-Specversion": "1.0", "Ce-Source": "/interop"}

// messages are bodies that a sender which parses and re-encodes, or signs anything but
// the bytes it sends, gets wrong.
var messages = []message{
	{name: "plain", body: plain(`{"order":42,"state":"paid"}`)},
	{name: "large-numbers", body: plain(`{"n":12345678901234567890123456789,"f":1.0,"e":1E400,"z":-0,"t":0.10}`)},
	{name: "escapes", body: plain(`{"a":"\u00e9\/\ud83d\ude00\u2028","lone":"\ud800","nul":"\u0000","tag":"<a href=\"x\">&amp;</a>"}`)},
	{name: "duplicate-keys", body: plain(`{"a":1,"a":2,"b":{"a":3,"a":4}}`)},
	{name: "key-order", body: plain(`{"z":1,"a":2,"":3,"10":4,"9":5}`)},
	{name: "not-ascii", body: plain(`{"text":"Tür 戸 🚪 ` + "\u00a0\u2028" + `"}`)},
	{name: "odd-spaces", body: func(id, typ string) string {
		return fmt.Sprintf("\r\n\t {\n\"id\" :\t%q ,\r\n \"data\":  [ 1 ,\n2 ] , \"type\"  : %q}\n\n ", id, typ)
	}},
	{name: "200-kib", body: plain(`"` + strings.Repeat("0123456789abcdef", 200<<10/16) + `"`)},
	{name: "structured", contentType: "application/cloudevents+json", body: structured(`{"n":12345678901234567890,"a":1,"a":2}`)},
	{name: "structured-charset", contentType: "application/cloudevents+json; charset=utf-8", body: structured(`"日本"`)},
	{name: "binary-json", ce: binaryHeaders, body: fixed(" {\"b\" : 1.50 }\n")},
	{name: "binary-text", contentType: "text/plain", ce: binaryHeaders, body: fixed("not JSON at all: { \"\n")},
	{name: "binary-not-utf8", contentType: "application/octet-stream", ce: binaryHeaders, body: fixed("\x00\xff\xfe\x80{\"a\"\xc3\x28}\r\n")},
}

func structured(data string) func(id, typ string) string {
	return func(id, typ string) string {
		return fmt.Sprintf("{\"specversion\" : \"1.0\",\n \"id\":%q, \"source\":\"/interop\",\"type\":%q,\"data\":%s }", id, typ, data)
	}
}

// header is the request's header for an id and a type.
func (m message) header(id, typ string) http.Header {
	h := http.Header{"Content-Type": {"application/json"}}
	if m.contentType != "" {
		h.Set("Content-Type", m.contentType)
	}
	if m.ce != nil {
		for name, value := range m.ce {
			h.Set(name, value)
		}
		h.Set("Ce-Id", id)
		h.Set("Ce-Type", typ)
	}
	return h
}
