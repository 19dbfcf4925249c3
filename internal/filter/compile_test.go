package filter

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

func TestCompileRefuses(t *testing.T) {
	repeat := func(part, between string, n int) string {
		return strings.TrimSuffix(strings.Repeat(part+between, n), between)
	}
	hundred := "[" + repeat("1", ",", 100) + "]"
	for _, row := range []struct{ name, expression, want string }{
		{"nothing", "", "the expression is empty"},
		{"blanks", " \n ", "the expression is empty"},
		{"half an expression", "event.type ==", "at 1:14: "},
		{"two expressions", "event.type == 'a' event.type == 'b'", "at 1:19: "},
		{"an open quote", "event.type == 'a", "at 1:15: "},
		{"on the second line", "event.type == 'a' &&\n  event.tpye == 'b'", "at 2:8: undefined field 'tpye'"},
		{"a single =", "event.type = 'a'", "at 1:12: "},
		{"a member that is none", "event.subject == 'a'", "undefined field 'subject'"},
		{"a variable that is none", "data.amount > 1", "undeclared reference to 'data'"},
		{"a function that is none", "event.type.begins('a')", "undeclared reference to 'begins'"},
		{"a text with a number", "event.type == 5", "found no matching overload"},
		{"a text", "event.type", "must give true or false, but it gives a text"},
		{"a number", "1 + 1", "gives a number"},
		{"a list", "[1]", "gives a list"},
		{"what depends on the event", "event.data.paid", "compare it, as in … == true"},
		{"the event as a whole", "event == event", "at 1:1: event can't be used as a whole"},
		{"an optional member of the event", "event.?time.hasValue()", "event can't be used as a whole"},
		{"a loop variable called event", "event.data.exists(event, event == 1)", "can't be called event"},
		{"an object", "doorstep.Event{id: 'a'}.id == 'a'", "can't make objects"},
		{"too long", "event.type == '" + strings.Repeat("a", MaxBytes) + "'", "longer than 4096 bytes"},
		{"too deep", strings.Repeat("(", 200) + "true" + strings.Repeat(")", 200), "too deep"},
		{"a literal that is no time", "event.time > timestamp('yesterday')", "at 1:24: invalid timestamp argument"},
		{"a literal that is no duration", "event.time - event.time > duration('1 day')", "at 1:36: invalid duration argument"},

		// What could take longer than it looks.
		{"map", "event.data.map(x, [x, x]).size() > 0", "undeclared reference to 'map'"},
		{"replace", "event.type.replace('', event.type) == ''", "at 1:19: replace() can't be used in a filter"},
		{"join", "[event.type].join(event.type) == ''", "join() can't be used"},
		{"split", "event.type.split('.')[0] == 'a'", "split() can't be used"},
		{"format", "'%.999999999f'.format([1.0]) == ''", "format() can't be used"},
		{"indexOf", "event.type.indexOf(event.type) > 1", "indexOf() can't be used"},
		{"optMap", "optional.of(1).optMap(x, x).hasValue()", "undeclared reference to"},
		{"parts of the data in a list", "[event.data.a, event.data.a] == [1, 1]", "at 1:12: a list or map can't hold parts of event.data"},
		{"parts of the data in a map", "{'a': event.data} == {'a': 1}", "a list or map can't hold parts of event.data"},
		{"attributes in a list", "[event.attributes] == [{'a': 'b'}]", "can't hold a map"},
		{"an optional in a list", "[?event.data.?a] == [1]", "a list or map can't hold"},
		{"a pattern from the event", "event.type.matches(event.id)", "at 1:25: the pattern of matches() must be written out"},
		{"a pattern as a function", "matches(event.type, event.id)", "matches() can't be used"},
		{"a pattern that is none", "event.type.matches('(')", "at 1:20: the pattern of matches() can't be read"},
		{"a pattern of thousands of steps", "event.type.matches('" + strings.Repeat("(.{0,100}){9}", 10) + "')", "use smaller repetitions"},
		{"loops five deep", "[1].all(a,[1].all(b,[1].all(c,[1].all(d,[1].all(e,true)))))", "loops may stand 4 deep"},
		{"loops of a hundred in one another", fmt.Sprintf("%[1]s.filter(a,%[1]s.filter(b,%[1]s.filter(c,a+b+c>0)==[])==[])==[]", hundred), "costs at least"},
	} {
		t.Run(row.name, func(t *testing.T) {
			f, err := Compile(row.expression)
			if err == nil {
				t.Fatalf("compiled: %s", f)
			}
			if !strings.Contains(err.Error(), row.want) {
				t.Errorf("error %q does not say %q", err, row.want)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q has more than one line", err)
			}
		})
	}
}

func TestAnExpressionIsCompiledOnce(t *testing.T) {
	made := map[string]int{}
	var mu sync.Mutex
	c := cache{compile: func(expression string) (*Filter, error) {
		mu.Lock()
		defer mu.Unlock()
		made[expression]++
		if expression == "bad" {
			return nil, fmt.Errorf("bad")
		}
		return &Filter{expression: expression}, nil
	}}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for _, expression := range []string{"a", "b", "bad", "a"} {
				f, err := c.get(expression)
				if (err != nil) != (expression == "bad") || err == nil && f.String() != expression {
					t.Errorf("%s is %v, %v", expression, f, err)
				}
			}
		})
	}
	group.Wait()
	for expression, n := range made {
		if n != 1 {
			t.Errorf("%s was compiled %d times", expression, n)
		}
	}
}

func TestTheCacheIsBounded(t *testing.T) {
	made := 0
	c := cache{compile: func(expression string) (*Filter, error) {
		made++
		return &Filter{expression: expression}, nil
	}}
	const often = "often"
	for i := range 5 * cacheSize {
		for _, expression := range []string{often, fmt.Sprint("e", i)} {
			if _, err := c.get(expression); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(c.young) + len(c.aged); n > 2*cacheSize {
			t.Fatalf("%d expressions are remembered", n)
		}
	}
	if made != 5*cacheSize+1 {
		t.Errorf("%d compilations; what is asked for often must stay", made)
	}
}
