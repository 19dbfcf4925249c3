package receivers

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// call is a request to a receiver, right unless it is made wrong.
type call struct {
	id, timestamp string
	// signature is made of the others where it is empty.
	signature string
	body      string
}

func (c call) sign() string { return signingKey.Sign(c.id, c.timestamp, []byte(c.body)) }

// post sends a request and gives its answer.
func (r *receiver) post(c call) (status int, text string) {
	r.t.Helper()
	status, text, err := r.try(c)
	if err != nil {
		r.t.Fatal(err)
	}
	return status, text
}

// try sends a request; the error is that of the connection.
func (r *receiver) try(c call) (status int, text string, err error) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, "http://"+r.addr+"/hooks", strings.NewReader(c.body))
	if err != nil {
		r.t.Fatal(err)
	}
	if c.signature == "" {
		c.signature = c.sign()
	}
	req.Header = http.Header{
		"Content-Type": {"application/json"},
		"Webhook-Id":   {c.id}, "Webhook-Timestamp": {c.timestamp}, "Webhook-Signature": {c.signature},
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

var client = &http.Client{Timeout: 30 * time.Second}

func stamp(off int) string { return strconv.FormatInt(time.Now().Unix()+int64(off), 10) }

// Whatever is not signed by the key over these very bytes within five minutes is
// answered 401, and nothing of it is stored.
func TestRefused(t *testing.T) {
	now := stamp(0)
	good := call{timestamp: now, body: `{"amount":1000.00}`}
	with := func(change func(*call)) call {
		c := good
		change(&c)
		return c
	}
	other := good
	other.body = `{"amount":1000.01}`
	signed := func(format string) func(string) call {
		return func(id string) call {
			c := good
			c.id = id
			c.signature = fmt.Sprintf(format, strings.TrimPrefix(c.sign(), "v1,"))
			return c
		}
	}
	as := func(c call) func(string) call {
		return func(id string) call { c.id = id; return c }
	}
	cases := []struct {
		name string
		make func(id string) call
	}{
		{"another body", func(id string) call {
			c := good
			c.id = id
			c.signature = call{id: id, timestamp: now, body: other.body}.sign()
			return c
		}},
		// case SG32
		{"a body that was parsed and encoded again", func(id string) call {
			c := good
			c.id = id
			c.signature, c.body = c.sign(), `{"amount":1000}`
			return c
		}},
		{"another id", func(id string) call {
			c := good
			c.id = id
			c.signature = call{id: id + "x", timestamp: now, body: c.body}.sign()
			return c
		}},
		// case DUP-08
		{"no id", func(string) call { return good }},
		// case IV215, CLK-01, CLK-02; the seconds of the clock are those of exact below
		{"ten years ahead", as(with(func(c *call) { c.timestamp = stamp(10 * 365 * 86400) }))},
		{"six minutes old, signed well", as(with(func(c *call) { c.timestamp = stamp(-360) }))}, // case IV218
		{"25 hours old, signed well", as(with(func(c *call) { c.timestamp = stamp(-25 * 3600) }))},
		// case CLK-03 (a blank before a header's value is no part of it)
		{"timestamp hello", as(with(func(c *call) { c.timestamp = "hello" }))},
		{"timestamp with a fraction", as(with(func(c *call) { c.timestamp += ".0" }))},
		{"negative timestamp", as(with(func(c *call) { c.timestamp = "-1" }))},
		{"timestamp with a plus", as(with(func(c *call) { c.timestamp = "+" + now }))},
		{"timestamp in milliseconds", as(with(func(c *call) { c.timestamp += "000" }))},
		{"timestamp beyond all numbers", as(with(func(c *call) { c.timestamp = "99999999999999999999" }))},
		{"no timestamp", as(with(func(c *call) { c.timestamp = "" }))},
		{"hexadecimal timestamp", as(with(func(c *call) { c.timestamp = "0x60" }))},
		{"timestamp with an underscore", as(with(func(c *call) { c.timestamp = now[:4] + "_" + now[4:] }))},
		{"timestamp in Arabic digits", as(with(func(c *call) { c.timestamp = "١٦١٤٢٦٥٣٣٠" }))},
		// case IV217
		{"signature not ASCII", signed("v1,é%s")},
		{"signature of blanks", signed("  \t %.0s")},
		{"no signature", signed(",%.0s")},
		{"signature of 10 KiB", signed("v1," + strings.Repeat("A", 10<<10) + "%s")},
		{"signature cut off", func(id string) call {
			c := good
			c.id = id
			c.signature = c.sign()[:20]
			return c
		}},
		{"signature in hexadecimal", signed("v1,6F2D%.0s")},
		{"two commas", signed("v1,,%s")},
		{"no version", signed("%s")},
		{"another version", signed("v2,%s")},
		{"capital version", signed("V1,%s")},
		{"joined by commas", signed("v1,AAAA,v1,%s")},
	}
	forEach(t, func(t *testing.T, r *receiver) {
		for i, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				status, text := r.post(c.make(fmt.Sprintf("refused-%d", i)))
				if status != 401 {
					t.Errorf("answered %d %q, want 401", status, text)
				}
				if c.name == "a body that was parsed and encoded again" && !strings.Contains(text, "raw body") {
					t.Errorf("the answer does not speak of the raw body: %q", text)
				}
			})
		}
		if status, text := r.post(call{id: "last", timestamp: stamp(0), body: "{}"}); status != 204 {
			t.Fatalf("after all that a good request is answered %d %q", status, text)
		}
		r.awaitDone("last")
		if times, _ := r.done(); len(times) != 1 {
			t.Errorf("work was done for %v, want for the last one only", times)
		}
	})
}

// case CLK-01, CLK-02, IV215
func TestFiveMinutesBothWays(t *testing.T) {
	forEach(t, func(t *testing.T, r *receiver) {
		for off, want := range map[int]int{-300: 204, -301: 401, 300: 204, 301: 401, -299: 204, 299: 204} {
			status, text := r.postExact(off)
			if status != want {
				t.Errorf("a timestamp %d s from now is answered %d %q, want %d", off, status, text, want)
			}
			if status == 401 && !strings.Contains(text, strconv.Itoa(-off)+" seconds off") {
				t.Errorf("the answer does not tell how far the clock is off: %q", text)
			}
		}
	})
}

// postExact sends a request whose timestamp is off seconds from the receiver's clock:
// again if the second changed meanwhile.
func (r *receiver) postExact(off int) (int, string) {
	r.t.Helper()
	for try := 0; ; try++ {
		before := time.Now().Unix()
		status, text := r.post(call{id: fmt.Sprintf("off%d-%d", off, try), timestamp: strconv.FormatInt(before+int64(off), 10), body: "{}"})
		if time.Now().Unix() == before {
			return status, text
		}
	}
}

// What is signed well is taken, whatever its bytes, its id and the signatures beside the
// right one are.
func TestTaken(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", 1<<20/16)
	cases := []struct {
		name, id, body string
		// around is put around the right signature.
		around string
	}{
		{"plain", "evt_1", `{"amount":1000.00}`, ""},
		{"empty body", "evt_2", "", ""},
		{"not UTF-8", "evt_3", "\x00\xff\xfe{\"a\"\xc3\x28}\r\n", ""},
		{"line ends", "evt_4", "\r\n{\r\n}\n\n", ""},
		{"1 MiB", "evt_5", long, ""},
		{"two keys, the second is ours", "evt_6", "{}", "v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA= %s"},
		{"two keys, the first is ours", "evt_7", "{}", "%s v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="},
		{"beside an asymmetric one", "evt_8", "{}", "v1a,AAAA %s"},
		// case DUP-07
		{"an id with a dot", "a.b", "{}", ""},
		{"an id with a blank", "a b", "{}", ""},
		{"an id that is a path", "../../x", "{}", ""},
		{"an id with a slash", "a/b", "{}", ""},
		{"one character", "a", "{}", ""},
		{"its capital", "A", "{}", ""},
		{"256 characters", strings.Repeat("z", 256), "{}", ""},
		{"an id for a prototype", "__proto__", "{}", ""},
		{"an id for a database", "' OR 1=1 --", "{}", ""},
		{"an id of another's percent signs", "%s%d%n", "{}", ""},
		{"an id that is not ASCII", "caf\xe9", "{}", ""},
	}
	forEach(t, func(t *testing.T, r *receiver) {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				m := call{id: c.id, timestamp: stamp(0), body: c.body}
				if c.around != "" {
					m.signature = fmt.Sprintf(c.around, m.sign())
				}
				if status, text := r.post(m); status != 204 {
					t.Fatalf("answered %d %q, want 204", status, text)
				}
			})
		}
		// The answer may come, and the connection close, before the body is sent.
		if status, _, err := r.try(call{id: "over", timestamp: stamp(0), body: long + "."}); err == nil && status != 413 {
			t.Errorf("a body over 1 MiB is answered %d, want 413", status)
		}
		if status, _ := r.post(call{id: "last", timestamp: stamp(0), body: "{}"}); status != 204 {
			t.Fatalf("the last is answered %d, want 204", status)
		}
		r.awaitDone("last")
		times, length := r.done()
		for _, c := range cases {
			id := decoded(c.id, times)
			if times[id] != 1 || length[id] != len(c.body) {
				t.Errorf("%s: the work was done %d times, with %d bytes; want once, with %d", c.name, times[id], length[id], len(c.body))
			}
		}
		if len(times) != len(cases)+1 {
			t.Errorf("work was done for %d ids, want %d", len(times), len(cases)+1)
		}
	})
}

// decoded is an id as a receiver wrote it: the bytes of its header, or those read as
// ISO 8859-1 and written as UTF-8.
func decoded(id string, times map[string]int) string {
	if times[id] > 0 {
		return id
	}
	var b strings.Builder
	for i := range len(id) {
		b.WriteRune(rune(id[i]))
	}
	return b.String()
}
