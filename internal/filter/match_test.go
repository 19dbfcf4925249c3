package filter

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/doorstep-dev/doorstep/internal/event"
)

// parse reads an event as ingest does.
func parse(t testing.TB, contentType, body string, headers ...string) *event.Event {
	t.Helper()
	h := http.Header{"Content-Type": {contentType}}
	for i := 0; i < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	events, err := event.Parse("shop", h, []byte(body), event.Limits{MaxPayloadBytes: 2 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return events[0]
}

// plain is an event of the plain form with the given data.
func plain(t testing.TB, data string) *event.Event {
	return parse(t, "application/json", `{"id":"evt_1","type":"order.created","source":"/shop","time":"2026-11-30T23:30:00.5+01:00",`+
		`"attributes":{"customer":"cust_42","region":"eu","count":"7"},"data":`+data+`}`)
}

const orderData = `{
	"id": 123456789012345678, "unsigned": 18446744073709551615, "huge": 123456789012345678901234567890, "amount": 1000,
	"price": 19.99, "whole": 2.0, "tiny": 1e-3, "beyond": 1e400, "below": -5, "zero": -0,
	"name": "Größe €", "escaped": "a\u0062\n\"", "half": "\ud800", "empty": "", "digits": "0042",
	"paid": true, "closed": false, "nothing": null,
	"items": [{"sku": "A", "n": 1}, {"sku": "B", "n": 20}, {"sku": "C"}], "tags": ["red", "blue"], "none": [],
	"address": {"city": "Köln", "zip": "50667", "x-y": 1, "": 2}, "twice": 1, "twice": 2,
	"when": "2026-11-30T22:30:00Z", "for": "90m", "mixed": [1, "1", 1.0, null, [1]]
}`

// One row an expression about the event of orderData: true, false, or what the error says.
var orderRows = []struct{ name, expression, want string }{
	{"id", "event.id == 'evt_1'", "true"},
	{"type", "event.type == 'order.created'", "true"},
	{"type by its beginning", "event.type.startsWith('order.')", "true"},
	{"type of a list", "event.type in ['order.created', 'order.paid']", "true"},
	{"type not of a list", "event.type in ['order.paid']", "false"},
	{"source", "event.source == '/shop'", "true"},
	{"has source", "has(event.source)", "true"},
	{"time in another zone", "event.time == timestamp('2026-11-30T22:30:00.5Z')", "true"},
	{"time later", "event.time > timestamp('2026-11-30T22:30:00Z')", "true"},
	{"hour in UTC", "event.time.getHours() == 22", "true"},
	{"hour somewhere", "event.time.getHours('Europe/Berlin') == 23", "true"},
	{"an unknown zone", "event.time.getHours('Europe/Atlantis') == 23", "1:20: there is no time zone of that name"},
	{"time and a duration", "event.time - duration('1h') < timestamp('2026-11-30T22:00:00Z')", "true"},
	{"has time", "has(event.time)", "true"},

	{"attribute", "event.attributes.customer == 'cust_42'", "true"},
	{"attribute by index", "event.attributes['region'] == 'eu'", "true"},
	{"attributes are texts", "event.attributes.count == '7'", "true"},
	{"attribute as a number", "int(event.attributes.count) > 5", "true"},
	{"attribute there", "has(event.attributes.customer)", "true"},
	{"attribute not there", "has(event.attributes.partitionkey)", "false"},
	{"attribute missing", "event.attributes.partitionkey == 'x'", "partitionkey is missing; guard it with has()"},
	{"attribute optional", "event.attributes.?partitionkey.orValue('') == ''", "true"},
	{"attribute in the map", "'customer' in event.attributes", "true"},
	{"attribute by any name", "event.attributes.exists(name, event.attributes[name] == 'eu')", "true"},

	{"integer", "event.data.amount >= 1000", "true"},
	{"case PF24: 18 digits, equal", "event.data.id == 123456789012345678", "true"},
	{"18 digits, one off", "event.data.id == 123456789012345679", "false"},
	{"18 digits, greater by one", "event.data.id > 123456789012345677", "true"},
	{"an integer over int64", "event.data.unsigned == 18446744073709551615u", "true"},
	{"an integer over int64, one off", "event.data.unsigned == 18446744073709551614u", "false"},
	{"an integer over everything", "event.data.huge > 1.2e29", "true"},
	{"negative", "event.data.below < 0", "true"},
	{"minus zero", "event.data.zero == 0", "true"},
	{"fraction", "event.data.price == 19.99", "true"},
	{"fraction against an integer", "event.data.price > 19 && event.data.price < 20", "true"},
	{"a whole number with a point equals an integer", "event.data.whole == 2", "true"},
	{"exponent", "event.data.tiny == 0.001", "true"},
	{"a number without end", "event.data.beyond > 1e308", "true"},
	{"integer arithmetic", "event.data.amount * 2 + 1 == 2001", "true"},
	{"integer and fraction do not add", "event.data.price + 1 > 20.0", "1:18: an operator or function got values of types"},
	{"added as fractions", "double(event.data.amount) + event.data.price > 1019.0", "true"},
	{"overflow", "event.data.id * event.data.id > 0", "1:15: a number is out of range"},
	{"division by zero", "event.data.amount / event.data.zero > 1", "division by zero"},
	{"modulo", "event.data.amount % 7 == 6", "true"},

	{"text", "event.data.name == 'Größe €'", "true"},
	{"size counts characters", "size(event.data.name) == 7", "true"},
	{"escapes", `event.data.escaped == "ab\n\""`, "true"},
	{"half a surrogate pair", "event.data.half == '\ufffd'", "true"},
	{"empty text", "event.data.empty == ''", "true"},
	{"contains", "event.data.name.contains('öß')", "true"},
	{"endsWith", "event.data.name.endsWith('€')", "true"},
	{"lowerAscii", "event.data.address.city.lowerAscii() == 'köln'", "true"},
	{"upperAscii", "event.type.upperAscii() == 'ORDER.CREATED'", "true"},
	{"trim", "' x '.trim() == 'x'", "true"},
	{"substring", "event.data.digits.substring(2) == '42'", "true"},
	{"substring too far", "event.data.digits.substring(9) == '42'", "a position lies outside of a text"},
	{"charAt", "event.data.digits.charAt(3) == '2'", "true"},
	{"matches", `event.data.digits.matches('^[0-9]{4}$')`, "true"},
	{"matches not", `event.data.digits.matches('^[1-9]')`, "false"},
	{"matches a number", `event.data.amount.matches('1')`, "1:26: an operator or function got values of types"},
	{"text to number", "int(event.data.digits) == 42", "true"},
	{"text that is no number", "int(event.data.name) == 42", "1:4: a value can't be converted to another type"},
	{"number to text", "string(event.data.amount) == '1000'", "true"},
	{"text with a number", "event.data.name > 5", "1:17: an operator or function got values of types"},
	{"text equals no number", "event.data.digits == 42", "false"},
	{"text to time", "timestamp(event.data.when) < event.time", "true"},
	{"text that is no time", "timestamp(event.data.name) < event.time", "1:10: "},
	{"text to duration", "duration(event.data['for']) == duration('1h30m')", "true"},
	{"joined", "event.data.digits + '-' + event.attributes.region == '0042-eu'", "true"},
	{"texts by order", "event.data.when < '2026-12-01'", "true"},

	{"bool", "event.data.paid == true", "true"},
	{"bool negated", "!event.data.closed", "true"},
	{"a text is no bool", "event.data.name == 'x' || event.data.name", "an operator or function got values of types"},
	{"null", "event.data.nothing == null", "true"},
	{"null is there", "has(event.data.nothing)", "true"},
	{"null is less than nothing", "event.data.nothing < 1", "an operator or function got values of types"},
	{"missing", "event.data.missing > 1", "1:11: missing is missing; guard it with has() or .?"},
	{"missing, asked for", "has(event.data.missing)", "false"},
	{"missing, guarded", "has(event.data.missing) && event.data.missing > 1", "false"},
	{"missing on the way", "has(event.data.missing.further)", "missing is missing"},
	{"missing, optional all the way", "event.data.?missing.further.orValue(0) > 1", "false"},
	{"missing, one side decides", "event.data.missing > 1 || event.data.amount > 1", "true"},
	{"a member of a text", "event.data.name.x == 1", "x is missing"},
	{"has a member of a text", "has(event.data.name.x)", "false"},

	{"list by index", "event.data.tags[1] == 'blue'", "true"},
	{"list too short", "event.data.tags[2] == 'blue'", "a list is too short for an index"},
	{"list, optional index", "event.data.tags[?2].orValue('') == ''", "true"},
	{"list holds", "'red' in event.data.tags", "true"},
	{"list holds not", "'green' in event.data.tags", "false"},
	{"list holds by number", "1 in event.data.mixed", "true"},
	{"list size", "size(event.data.items) == 3", "true"},
	{"list equals", "event.data.tags == ['red', 'blue']", "true"},
	{"list of another order", "event.data.tags == ['blue', 'red']", "false"},
	{"lists joined", "(event.data.tags + event.data.none).size() == 2", "true"},
	{"exists", "event.data.items.exists(i, i.sku == 'B')", "true"},
	{"exists where some have no such member", "event.data.items.exists(i, i.n > 10)", "true"},
	{"exists in none where some have no such member", "event.data.items.exists(i, i.n > 100)", "n is missing"},
	{"exists, guarded", "event.data.items.exists(i, has(i.n) && i.n > 100)", "false"},
	{"all", "event.data.items.all(i, i.sku != '')", "true"},
	{"all of none", "event.data.none.all(i, i == 1)", "true"},
	{"exists_one", "event.data.items.exists_one(i, i.sku == 'A')", "true"},
	{"filter", "event.data.items.filter(i, i.sku in ['A', 'C']).size() == 2", "true"},
	{"loops in loops", "event.data.tags.exists(t, event.data.items.exists(i, i.sku == t)) == false", "true"},
	{"a loop over a number", "event.data.amount.exists(i, i == 1)", "neither a list nor a map"},
	{"a loop over what is written out", "[1, 2].exists(i, i == event.data.items.size() - 1)", "true"},
	{"list of an event's texts", "[event.type, string(event.data.name)] == ['order.created', 'Größe €']", "true"},

	{"map", "event.data.address.city == 'Köln'", "true"},
	{"map by an odd name", "event.data.address['x-y'] == 1 && event.data.address[''] == 2", "true"},
	{"map holds", "'zip' in event.data.address", "true"},
	{"map size", "event.data.address.size() == 4", "true"},
	{"map equals", "event.data.items[0] == {'sku': 'A', 'n': 1}", "true"},
	{"map, all names", "event.data.address.all(name, name != 'street')", "true"},
	{"the last of two of a name", "event.data.twice == 2", "true"},
	{"by a name from the event", "event.data[event.attributes.region] == 1", "a member that it names is missing"},
	{"type of a value", "type(event.data.amount) == int && type(event.data.price) == double", "true"},
	{"choice", "(event.data.paid ? event.data.amount : 0) == 1000", "true"},
	{"has data", "has(event.data)", "true"},
}

func TestMatch(t *testing.T) {
	e := plain(t, orderData)
	for _, row := range orderRows {
		t.Run(row.name, func(t *testing.T) { checkMatch(t, row.expression, e, row.want) })
	}
	if len(orderRows) < 60 {
		t.Errorf("%d rows are left", len(orderRows))
	}
}

func checkMatch(t *testing.T, expression string, e *event.Event, want string) {
	t.Helper()
	f, err := Compile(expression)
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	pass, err := f.Match(e)
	switch {
	case want == "true" || want == "false":
		if err != nil || pass != (want == "true") {
			t.Errorf("%s is %t, %v; want %s", expression, pass, err, want)
		}
	case err == nil:
		t.Errorf("%s is %t, want an error with %q", expression, pass, want)
	case pass || !strings.Contains(err.Error(), want):
		t.Errorf("%s: %t, error %q does not say %q", expression, pass, err, want)
	}
}

func TestMatchEveryForm(t *testing.T) {
	const ce = "application/cloudevents+json"
	structured := func(members string) *event.Event {
		return parse(t, ce, `{"specversion":"1.0","id":"1","source":"/s","type":"t","subject":"Größe","flag":true,"n":42`+members+`}`)
	}
	binary := func(contentType, body string) *event.Event {
		return parse(t, contentType, body, "ce-specversion", "1.0", "ce-id", "1", "ce-source", "/s", "ce-type", "t",
			"ce-subject", "Gr%C3%B6%C3%9Fe", "ce-flag", "true", "ce-n", "42")
	}
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	const attributes = "event.attributes.subject == 'Größe' && event.attributes.flag == 'true' && event.attributes.n == '42'"
	for _, row := range []struct {
		name       string
		e          *event.Event
		expression string
		want       string
	}{
		// cases IN12, CEH-03: attributes are the same in either mode.
		{"structured, attributes", structured(``), attributes, "true"},
		{"binary, attributes", binary("text/plain", "x"), attributes, "true"},
		{"structured", structured(`,"data":{"a":1}`), "event.data.a == 1", "true"},
		{"structured, a text", structured(`,"data":"<a/>","datacontenttype":"text/xml"`), "event.data == '<a/>'", "true"},
		{"structured, no data", structured(``), "event.data == null && !has(event.data)", "true"},
		{"structured, no data, a member of it", structured(``), "event.data.a == 1", "1:11: "},
		{"structured, null", structured(`,"data":null`), "has(event.data)", "false"},
		{"structured, no time", structured(``), "has(event.time)", "false"},
		{"structured, no time, compared", structured(``), "event.time > timestamp('2026-01-01T00:00:00Z')", "1:6: event.time is not set"},
		{"base64 of JSON", structured(`,"data_base64":"eyJhIjoxfQ==","datacontenttype":"application/json"`), "event.data.a == 1", "true"},
		{"base64 of text", structured(`,"data_base64":"YQ==","datacontenttype":"text/plain"`), "event.data == 'a'", "true"},
		{"base64 of anything", structured(`,"data_base64":"AP8=","datacontenttype":"image/png"`), `event.data == b"\x00\xff"`, "true"},
		{"binary, JSON", binary("application/json", ` {"a": 1} `), "event.data.a == 1", "true"},
		{"binary, JSON by its suffix", binary("application/vnd.shop+json; charset=utf-8", `{"a":1}`), "event.data.a == 1", "true"},
		{"binary, JSON that is none", binary("application/json", `{"a":`), "event.data.a == 1", "event.data can't be read"},
		{"binary, JSON that is none, not asked for", binary("application/json", `{"a":`), "event.type == 't'", "true"},
		{"binary, two JSON values", binary("application/json", `1 2`), "event.data == 1", "event.data can't be read"},
		{"binary, XML", binary("text/xml; charset=utf-8", `<a/>`), "event.data.contains('<a')", "true"},
		{"binary, XML by its suffix", binary("application/atom+xml", `<a/>`), "event.data.contains('<a')", "true"},
		{"binary, text that is not UTF-8", binary("text/plain", "\xff"), `event.data == b"\xff"`, "true"},
		{"binary, no JSON and no text", binary("application/octet-stream", "{}"), `event.data == b"{}"`, "true"},
		{"binary, empty", binary("application/json", ``), "event.data == null", "true"},
		{"plain, no source", parse(t, "application/json", `{"id":"1","type":"t","data":1}`), "has(event.source) || event.source != ''", "false"},
		{"plain, no attributes", parse(t, "application/json", `{"id":"1","type":"t","data":1}`), "has(event.attributes) || event.attributes.size() > 0", "false"},
		{"plain, a number as data", plain(t, "7"), "event.data == 7", "true"},
		{"plain, a list as data", plain(t, "[1,2]"), "event.data.exists(x, x == 2)", "true"},
		{"a member called data", plain(t, `{"data":{"data":1}}`), "event.data.data.data == 1", "true"},
		{"nested 9,990 deep", plain(t, deep(9990)), "event.data.size() == 1 && event.data == event.data", "true"},
		{"nested too deep", plain(t, deep(100_000)), "event.data.size() == 1", "nested too deep"},
		{"nested too deep, not asked for", plain(t, deep(100_000)), "event.type == 'order.created'", "true"},
	} {
		t.Run(row.name, func(t *testing.T) { checkMatch(t, row.expression, row.e, row.want) })
	}
}

// What one filter had decoded serves the next, and a filter that failed leaves nothing behind.
func TestFiltersShareAnInput(t *testing.T) {
	in := NewInput(plain(t, `{"a":1,"l":[1,2,3]}`))
	for range 3 {
		for _, row := range []struct {
			expression string
			pass, fail bool
		}{
			{"event.data.a == 1", true, false},
			{"event.data.a == 2", false, false},
			{"event.data.b == 2", false, true},
			{"event.data.l.filter(x, x > 1).size() == 2", true, false},
			{"event.data.l.size() == 3", true, false},
		} {
			f, err := Compile(row.expression)
			if err != nil {
				t.Fatal(err)
			}
			if pass, err := f.MatchInput(in); pass != row.pass || (err != nil) != row.fail {
				t.Errorf("%s is %t, %v", row.expression, pass, err)
			}
		}
	}
	if !in.decoded {
		t.Error("nothing was decoded")
	}
}

func TestAFilterIsSafeForConcurrentUse(t *testing.T) {
	f, err := Compile("event.data.items.filter(i, i.n > 1).size() == 1 && event.data.amount.matches('^[0-9]+$')")
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for n := range 8 {
		e := plain(t, fmt.Sprintf(`{"items":[{"n":1},{"n":%d}],"amount":"%d"}`, n, n))
		group.Go(func() {
			for range 200 {
				if pass, err := f.Match(e); err != nil || pass != (n > 1) {
					t.Errorf("of %d it is %t, %v", n, pass, err)
				}
			}
		})
	}
	group.Wait()
}
