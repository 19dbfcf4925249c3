package filter

import (
	"encoding/json"
	"testing"

	"github.com/doorstep-dev/doorstep/internal/event"
)

// FuzzMatch: no data makes an evaluation panic, and whether it is asked once or twice makes no difference.
func FuzzMatch(f *testing.F) {
	for _, data := range []string{
		`null`, `{}`, `{"a":1}`, `{"a":{"b":[1,2,{"c":"d"}]}}`, `[1,"1",1.0,null,[]]`, `"text"`, `1e999`, `-0`, `{"":{"":[]}}`,
		`18446744073709551615`, `{"a":"\ud800"}`, `[[[[]]]]`, `{"a":1,"a":{"b":2}}`, orderData, `{"a":`, ``, "\xff",
	} {
		f.Add([]byte(data), "application/json")
	}
	f.Add([]byte("\x00\xff"), "image/png")
	f.Add([]byte("a=b"), "text/plain")
	var filters []*Filter
	for _, row := range orderRows {
		filter, err := Compile(row.expression)
		if err != nil {
			f.Fatal(err)
		}
		filters = append(filters, filter)
	}
	for _, expression := range []string{
		"event.data.a.b == event.data.a.c || event.data.a > 1", "event.data.exists(x, event.data[x].exists(y, y == x))",
		"event.data in event.data", "event.data == event.data && event.data + event.data != event.data",
		"event.data.?a[?0].?b.orValue(event.data) == event.data", "string(event.data) + event.data == ''", "-event.data < 0",
		"event.data.filter(x, x == event.data).exists_one(x, x.y)", "!event.data.a", "event.data.matches('^a+$')",
		"event.data in ['a', 1, 2.0, true, null]", "event.data.a in {'a': 1}", "type(event.data) == list",
	} {
		filter, err := Compile(expression)
		if err != nil {
			f.Fatal(err)
		}
		filters = append(filters, filter)
	}
	f.Fuzz(func(t *testing.T, data []byte, contentType string) {
		events := []*event.Event{{Namespace: "n", ID: "1", Type: "t", Mode: event.ModeBinary, ContentType: contentType, Body: data}}
		if json.Valid(data) {
			events = append(events, &event.Event{Namespace: "n", ID: "1", Type: "t", Mode: event.ModePlain, Body: append([]byte(`{"data":`), append(data, '}')...)})
		}
		for _, e := range events {
			in := NewInput(e)
			for _, filter := range filters {
				pass, err := filter.MatchInput(in)
				if again, err2 := filter.MatchInput(in); again != pass || (err == nil) != (err2 == nil) {
					t.Errorf("%s is %t, %v, and then %t, %v", filter, pass, err, again, err2)
				}
			}
		}
	})
}
