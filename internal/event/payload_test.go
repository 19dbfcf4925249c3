package event

import (
	"net/http"
	"testing"

	"pgregory.net/rapid"
)

func TestDataAlone(t *testing.T) {
	const start = `{"specversion":"1.0","id":"1","source":"/s","type":"t"`
	for _, row := range []struct {
		name, contentType, body string
		headers                 http.Header
		data, dataType          string
	}{
		{name: "plain, as it was written", contentType: "application/json", body: `{"id":"1","type":"t", "data" :  { "n":1e400, "s":"\u00e9\/" } , "x":1}`, data: `{ "n":1e400, "s":"\u00e9\/" }`, dataType: "application/json"},
		{name: "plain, data before id", contentType: "application/json; charset=utf-8", body: `{"data":[1, 2 ],"id":"1","type":"t"}`, data: `[1, 2 ]`, dataType: "application/json"},
		{name: "plain, a member called data within another", contentType: "application/json", body: `{"x":{"data":1},"id":"1","type":"t","data":2}`, data: `2`, dataType: "application/json"},
		{name: "plain, its name escaped", contentType: "application/json", body: `{"id":"1","type":"t","\u0064ata":"x"}`, data: `"x"`, dataType: "application/json"},
		{name: "plain, null", contentType: "application/json", body: `{"id":"1","type":"t","data":null}`, data: `null`, dataType: "application/json"},
		{name: "plain, a member of its own called data_base64", contentType: "application/json", body: `{"id":"1","type":"t","data_base64":7,"datacontenttype":[],"data":1}`, data: `1`, dataType: "application/json"},
		{name: "structured, no type", contentType: typeStructured, body: start + `,"data":{"a" : 1}}`, data: `{"a" : 1}`, dataType: "application/json"},
		{name: "structured, a string under JSON stays JSON", contentType: typeStructured, body: start + `,"data":"{\"a\":1}"}`, data: `"{\"a\":1}"`, dataType: "application/json"},
		{name: "structured, a string under another JSON type", contentType: typeStructured, body: start + `,"datacontenttype":"application/vnd.x+json; v=1","data":"a"}`, data: `"a"`, dataType: "application/vnd.x+json; v=1"},
		{name: "structured, text", contentType: typeStructured, body: start + `,"datacontenttype":"text/plain","data":"a\n\u00e9\ud83d\ude00"}`, data: "a\né😀", dataType: "text/plain"},
		{name: "structured, XML without escapes", contentType: typeStructured, body: start + `,"datacontenttype":"application/xml","data":"<a/>"}`, data: "<a/>", dataType: "application/xml"},
		{name: "structured, an object under text", contentType: typeStructured, body: start + `,"datacontenttype":"text/plain","data":{"a":1}}`, data: `{"a":1}`, dataType: "text/plain"},
		{name: "structured, base64", contentType: typeStructured, body: start + `,"datacontenttype":"image/png","data_base64":"/wD+"}`, data: "\xff\x00\xfe", dataType: "image/png"},
		{name: "structured, base64 without a type", contentType: typeStructured, body: start + `,"data_base64":"/wD+"}`, data: "\xff\x00\xfe", dataType: ""},
		{name: "structured, no data", contentType: typeStructured, body: start + `}`, data: "", dataType: "application/json"},
		{name: "structured, no data but a type", contentType: typeStructured, body: start + `,"datacontenttype":"text/csv"}`, data: "", dataType: "text/csv"},
		{name: "structured, null", contentType: typeStructured, body: start + `,"datacontenttype":null,"data":null}`, data: "null", dataType: "application/json"},
		{name: "structured, a type that no header can hold (case BDY-09)", contentType: typeStructured, body: start + `,"datacontenttype":"text/plain\r\nX-Evil: 1","data":"a"}`, data: "a", dataType: ""},
		{name: "binary", contentType: "text/csv", headers: http.Header{"Ce-Id": {"1"}, "Ce-Source": {"/s"}, "Ce-Type": {"t"}, "Ce-Specversion": {"1.0"}}, body: "a,b\n", data: "a,b\n", dataType: "text/csv"},
	} {
		t.Run(row.name, func(t *testing.T) {
			header := http.Header{"Content-Type": {row.contentType}}
			for name, values := range row.headers {
				header[name] = values
			}
			events, err := Parse("n", header, []byte(row.body), Limits{})
			if err != nil {
				t.Fatal(err)
			}
			data, dataType := events[0].Data().Alone()
			if string(data) != row.data || dataType != row.dataType {
				t.Errorf("%q as %q, want %q as %q", data, dataType, row.data, row.dataType)
			}
		})
	}
}

func TestDataOfAnElementOfABatchAlone(t *testing.T) {
	const element = `{"specversion":"1.0","id":"1","source":"/s","type":"t","data": {"n":1}}`
	events, err := Parse("n", http.Header{"Content-Type": {typeBatch}}, []byte("[ "+element+" ,"+element+"]"), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if data, dataType := e.Data().Alone(); string(data) != `{"n":1}` || dataType != "application/json" {
			t.Errorf("%q as %q", data, dataType)
		}
	}
}

// cases BDY-09, DUP-07: whatever an event holds, the header is one line of printable ASCII, and decodes to the same.
func TestAppendHeaderValue(t *testing.T) {
	for text, want := range map[string]string{
		"order.created": "order.created", "Euro € 😀": "Euro%20%E2%82%AC%20%F0%9F%98%80", "a\r\nX-Evil: 1": "a%0D%0AX-Evil:%201",
		`a"b`: "a%22b", "100%": "100%25", "\x00\x7f": "%00%7F", " a ": "%20a%20", "": "", "https://a/b?c=d&e": "https://a/b?c=d&e",
	} {
		if got := string(AppendHeaderValue(nil, text)); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		value := string(AppendHeaderValue(nil, text))
		if !headerSafe(value) {
			t.Errorf("%q becomes %q", text, value)
		}
		if back, fault := decodeHeaderValue(value); fault != "" || back != text {
			t.Errorf("%q becomes %q and then %q (%s)", text, value, back, fault)
		}
	})
}
