package filter

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/event"
)

const largest = event.DefaultMaxPayloadBytes - 1<<10

// hostileData are data of about size bytes, each of a shape that makes something dear.
func hostileData(size int) map[string]string {
	list := func(element string, bytes int) string {
		return "[" + strings.Repeat(element+",", bytes/(len(element)+1)) + element + "]"
	}
	var members strings.Builder
	for i := range size / 14 {
		fmt.Fprintf(&members, `"k%07d":1,`, i)
	}
	firstHalf := members.String()[:strings.LastIndexByte(members.String()[:size/2-100], ',')+1]
	return map[string]string{
		"numbers":      list("1", size),
		"objects":      list(`{"a":1}`, size),
		"empties":      list("{}", size),
		"lists":        list("[1]", size),
		"lists of 500": list(list("1", 1000), size),
		"deep":         strings.Repeat("[", 9990) + strings.Repeat("]", 9990),
		"text":         `"` + strings.Repeat("a", size) + `"`,
		"texts":        list(`"`+strings.Repeat("a", 1000)+`"`, size),
		"members":      "{" + members.String() + `"z":1}`,
		"both":         `{"list":` + list("1", size/2) + `,"map":{` + firstHalf + `"z":1}}`,
	}
}

func hostileExpressions() []string {
	all := func(part, between string) string { // as often as an expression is long
		return strings.TrimSuffix(strings.Repeat(part+between, MaxBytes/(len(part)+len(between))), between)
	}
	return []string{
		"event.data.all(x, event.data.all(y, event.data.all(z, x == y || y == z)))",
		"event.data.all(x, x.all(y, event.data.all(z, true)))",
		"event.data.all(x, event.data == event.data)",
		"event.data.exists(x, x == event.data)",
		all("event.data==event.data", "&&"),
		all("!(7 in event.data)", "&&"),
		"event.data.all(x, !(x in event.data))",
		"event.data.all(x, event.data in event.data || true)",
		"(event.data" + strings.Repeat("+event.data", 50) + ").size() > 1",
		"(event.data" + strings.Repeat("+event.data", 50) + ") == (event.data" + strings.Repeat("+event.data", 50) + ")",
		"event.data.all(x, (event.data + event.data).size() > 0)",
		"event.data.filter(a, true).filter(b, true).filter(c, true).size() > 0",
		"[string(event.data)].all(a, [a+a+a+a].all(b, [b+b+b+b].all(c, [c+c+c+c].all(d, (d+d+d+d).size() > 0))))",
		"!event.data.matches('(a*)*(a*)*b')",
		"!event.data.matches('(.{0,30}){15}b')",
		all("!event.data.matches('a.{0,50}b')", "&&"),
		"event.data.all(x, !x.matches('(a*)*b'))",
		all("event.data.lowerAscii()!='x'", "&&"),
		all("event.data.upperAscii().lowerAscii().trim()!='x'", "&&"),
		all("event.data.size()!=1", "&&"),
		all("event.data.substring(1)!='x'", "&&"),
		all("!event.data.contains('aaaaaaaaaaaaaaaaaaaaab')", "&&"),
		"event.data.all(x, string(x).size() > 5 || true)",
		"event.data.all(x, timestamp('2026-01-01T00:00:00Z').getHours('Europe/Berlin') > 5 || true)",
		"event.data.all(x, {'a': [1, 2, 3]} == {'a': [1, 2, 3]})",
		"event.data.all(x, [string(x), string(x)].exists(y, y == 'q') || true)",
		"event.data.all(x, event.data.?a.orValue(event.data) == event.data || true)",
		"event.data.all(k, event.data[k] == 1 || true)",
		"event.data.exists_one(x, event.data.exists_one(y, x == y))",
		"bytes(event.data) + bytes(event.data) == b'' || true",
		"event.data.list.exists(x, event.data.map.exists(k, true) && false)", // a loop that ends at once
		"event.data.list.all(x, !event.data.map.all(k, false))",
		"event.data.all(x, event.data.all(y, [" + strings.Repeat("1,", 1900) + "string(x) + ''].size() > 0 || true))",
		"event.data.all(x, event.data.all(y, {" + strings.Repeat("'a':1,", 600) + "'b': string(x)}.size() > 0 || true))",
	}
}

// Each hostile expression is answered, with an error or not, in bounded time and memory for each kind of hostile data; and
// a neighbour's filter works on the same event right after. A tenth of what an evaluation may cost is enough to see that
// every step is paid for: what is not goes on for minutes all the same.
func TestCostBombsAreCutOff(t *testing.T) {
	// It is 10 ms and 10 MiB on a quiet machine, and a single step that is larger than what is left comes on top.
	const units, most, mostMemory = CostLimit / 10, 5 * time.Second, 100 << 20
	neighbour, err := Compile("event.attributes.customer == 'cust_42' && event.data != null")
	if err != nil {
		t.Fatal(err)
	}
	cut := 0
	var slowest time.Duration
	var slowestOf string
	for kind, data := range hostileData(largest) {
		in := NewInput(plain(t, data))
		for _, expression := range hostileExpressions() {
			f, err := Compile(expression)
			if err != nil {
				t.Fatalf("%.60s: %v", expression, err)
			}
			if !neighbourPasses(neighbour, in) { // and the data are decoded
				t.Fatalf("before %.60s a neighbour's filter does not pass", expression)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			started := time.Now()
			_, err = f.evaluate(in, units, started.Add(time.Hour))
			took := time.Since(started)
			runtime.ReadMemStats(&after)
			if took > slowest {
				slowest, slowestOf = took, fmt.Sprintf("%.60s for %s", expression, kind)
			}
			if made := after.TotalAlloc - before.TotalAlloc; took > most || made > mostMemory {
				t.Errorf("%.60s for %s took %v and %d MiB", expression, kind, took, made>>20)
			}
			if err != nil && strings.Contains(err.Error(), "costs more than") {
				cut++
			}
			if !neighbourPasses(neighbour, in) {
				t.Fatalf("after %.60s a neighbour's filter does not pass", expression)
			}
		}
	}
	t.Logf("%d were cut off; the slowest took %v: %s", cut, slowest, slowestOf)
	if cut < 50 {
		t.Errorf("only %d were cut off; are they still hostile?", cut)
	}
}

func neighbourPasses(f *Filter, in *Input) bool {
	pass, err := f.MatchInput(in)
	return pass && err == nil
}

// A loop goes over a map by name, so that what depends on the order is the same each time.
func TestLoopsGoOverMapsInOrder(t *testing.T) {
	data := `{"delta":1,"alpha":2,"charlie":3,"bravo":4,"":{"b":1,"a":2}}`
	for _, expression := range []string{
		"event.data.filter(k, true) == ['', 'alpha', 'bravo', 'charlie', 'delta']",
		"event.data.filter(k, k != '')[0] == 'alpha'",
		"event.data[''].filter(k, true) == ['a', 'b']",
		"event.attributes.filter(k, true) == ['customer', 'region']",
	} {
		for range 20 {
			e := parse(t, "application/json", `{"id":"1","type":"a","attributes":{"region":"eu","customer":"c"},"data":`+data+`}`)
			checkMatch(t, expression, e, "true")
		}
	}
}

// The same expression and event cost the same, so that they give the same answer.
func TestTheCutIsAlwaysAtTheSamePlace(t *testing.T) {
	e := plain(t, hostileData(largest)["numbers"])
	f, err := Compile("event.data.all(x, event.data.all(y, x == y))")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := f.Match(e); err == nil || !strings.Contains(err.Error(), "costs more than 1000000") {
			t.Errorf("error is %v", err)
		}
	}
}

// A filter over all of the largest event that is taken by default is no bomb.
func TestHonestFiltersOfLargeEvents(t *testing.T) {
	for kind, expression := range map[string]string{
		"numbers": "event.data.exists(x, x == 2) == false",
		"objects": "event.data.all(x, has(x.a) && x.a >= 1)",
		"texts":   "event.data.all(x, x.startsWith('aaa') && x.size() == 1000)",
		"text":    "event.data.contains('b') == false",
		"members": "event.data.z == 1 && event.data.size() > 10000",
	} {
		f, err := Compile(expression)
		if err != nil {
			t.Fatal(err)
		}
		if pass, err := f.Match(plain(t, hostileData(largest)[kind])); !pass || err != nil {
			t.Errorf("%s for %s is %t, %v", expression, kind, pass, err)
		}
	}
}

// An evaluation ends with its time too, where the machine is too slow to spend its units.
func TestTheClockEndsAnEvaluation(t *testing.T) {
	f, err := Compile("event.data.all(x, x == 1)")
	if err != nil {
		t.Fatal(err)
	}
	in := NewInput(plain(t, hostileData(largest)["numbers"]))
	_, err = f.evaluate(in, CostLimit, time.Now().Add(-time.Second))
	if err == nil || err.Error() != "the evaluation took too long" {
		t.Errorf("error is %v", err)
	}
}

// No error holds anything of the event.
func TestErrorsHoldNothingOfTheEvent(t *testing.T) {
	const secret = "s3cr3t"
	e := &event.Event{
		Namespace: "shop", ID: secret, Type: secret, Source: secret, Mode: event.ModePlain,
		Attributes: []event.Attribute{{Name: "a", Value: secret}},
		Body:       []byte(`{"id":"x","type":"y","data":{"a":"` + secret + `","n":5,"l":[1],"` + secret + `":1}}`),
	}
	failed := 0
	for _, expression := range []string{
		"event.data[event.id] > event.data.a", "event.data.l[event.data.n] == 1", "event.data.l[event.data.a] == 1",
		"event.data.n[event.data.a] == 1", "int(event.data.a) == 1", "double(event.id) > 1.0", "uint(event.id) > 1u",
		"timestamp(event.id) > timestamp(event.data.a)", "duration(event.id) > duration('1s')", "bool(event.id)",
		"event.data[event.data.a].x == 1", "event.data[event.data.a][event.data.a] == 1", "event.data.l[event.data.a].x == 1",
		"event.attributes[event.id + 'x'] == 'y'", "event.data.missing == 1", "event.data.a.b.c == 1", "event.data.a + 1 == 2",
		"-event.data.a == 1", "event.data.l.exists(x, x.y == 1)", "event.data.a.exists(x, x == 1)", "event.data.n / 0 == 1",
		"event.time > timestamp('2026-01-01T00:00:00Z')", "timestamp('2026-01-01T00:00:00Z').getHours(event.id) > 1",
		"event.id.substring(7) == ''", "event.id.charAt(event.data.n + 5) == ''", "event.data.a.matches('x') && event.data.n.matches('x')",
		"event.data.?a.value() > 1", "event.data.?b.value() > 1", "string(event.data.l) == ''", "event.data[event.data.l] == 1",
	} {
		f, err := Compile(expression)
		if err != nil {
			t.Fatalf("%s: %v", expression, err)
		}
		_, err = f.Match(e)
		if err == nil {
			continue
		}
		failed++
		if strings.Contains(err.Error(), secret) {
			t.Errorf("%s: error %q holds a part of the event", expression, err)
		}
	}
	if failed < 25 {
		t.Errorf("only %d expressions failed", failed)
	}
}
