package standalone

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/doorstep-dev/doorstep/internal/ingest"
)

// hostile makes JSON that a sender which parses and encodes again would change.
type hostile struct{ *rand.Rand }

func (h hostile) one(of ...string) string { return of[h.IntN(len(of))] }

func (h hostile) space() string {
	return h.one("", "", "", " ", "  ", "\n", "\t", "\r\n", " \n\t ")
}

// value is any JSON value, at most depth deep.
func (h hostile) value(depth int) string {
	kinds := 6
	if depth == 0 {
		kinds = 4
	}
	switch h.IntN(kinds) {
	case 0: // cases PF24, PF25
		return h.one("123456789012345678", "1730000000123", "1000000000000000000000", "1.0", "1E400", "-0", "0.10", "1e-7", "-0.0e+0",
			strconv.FormatUint(h.Uint64(), 10), "12345678901234567890123456789.000")
	case 1:
		return h.text()
	case 2:
		return h.one("true", "false", "null", `""`, "{}", "[]", "[ ]", "{\n}")
	case 3: // case PF30: JSON in a string, once and twice
		return h.one(`"{\"a\":1}"`, `"\"{\\\"a\\\":1}\""`)
	case 4:
		var items []string
		for range h.IntN(5) {
			items = append(items, h.space()+h.value(depth-1)+h.space())
		}
		return "[" + strings.Join(items, ",") + "]"
	default: // cases PF19, PF21, PF22: order, duplicates and spaces
		var members []string
		for range h.IntN(6) {
			key := h.one(`"z"`, `"a"`, `"a"`, `""`, `"10"`, `"9"`, `"\u0061"`, h.text())
			members = append(members, h.space()+key+h.space()+":"+h.space()+h.value(depth-1)+h.space())
		}
		return "{" + strings.Join(members, ",") + "}"
	}
}

// text is a string. case PF29: what encoders escape, and what they don't.
func (h hostile) text() string {
	var b strings.Builder
	b.WriteByte('"')
	for range h.IntN(8) {
		b.WriteString(h.one("<b>A & B</b>", "\u2028", "\u2029", `\u2028`, `\u003c`, "\ufeff", "\u00a0", `\/`, "/", `\ud83d\ude00`, "😀",
			`\ud800`, `\u0000`, `\b\f\n\r\t`, `\\`, `\"`, "Tür", "戸", "\x7f", "e\u0301", "'", "${x}", "%s", "%00", "\\u00E9", "\\u00e9"))
	}
	b.WriteByte('"')
	return b.String()
}

// post is one event to post, with what its receiver is to see of it.
type post struct {
	header http.Header
	body   []byte
	// pass are the headers that a receiver gets as they came.
	pass []string
}

func (h hostile) plain(id, typ string) post {
	members := []string{
		h.space() + `"id"` + h.space() + ":" + h.space() + `"` + id + `"` + h.space(),
		h.space() + `"type"` + h.space() + ":" + h.space() + `"` + typ + `"` + h.space(),
		h.space() + `"data"` + h.space() + ":" + h.space() + h.value(4) + h.space(),
	}
	h.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	contentType := h.one("application/json", "application/json; charset=utf-8", "application/json;charset=UTF-8")
	return post{
		header: http.Header{"Content-Type": {contentType}}, pass: []string{"Content-Type"},
		body: []byte(h.space() + "{" + strings.Join(members, ",") + "}" + h.space()),
	}
}

func (h hostile) structured(id, typ string) post {
	members := []string{`"specversion":"1.0"`, `"source":` + h.space() + `"/bytes"`, `"id":"` + id + `"`, `"type":"` + typ + `"`,
		`"data"` + h.space() + ":" + h.value(4), `"customer":"c 1"`}
	h.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	return post{
		header: http.Header{"Content-Type": {h.one("application/cloudevents+json", "application/cloudevents+json; charset=utf-8")}},
		pass:   []string{"Content-Type"},
		body:   []byte("{" + strings.Join(members, h.space()+","+h.space()) + "}" + h.space()),
	}
}

func (h hostile) binary(id, typ string) post {
	p := post{header: http.Header{
		"Content-Type":   {h.one("application/octet-stream", "text/plain", "application/json", "application/x-protobuf")},
		"Ce-Specversion": {"1.0"}, "Ce-Id": {id}, "Ce-Source": {"/bytes"}, "Ce-Type": {typ},
		"Ce-Subject": {h.one("a", `"Euro%20%E2%82%AC"`, "Euro%20%E2%82%AC", "a  b")},
	}}
	p.pass = []string{"Content-Type", "Ce-Specversion", "Ce-Id", "Ce-Source", "Ce-Type", "Ce-Subject"}
	switch h.IntN(3) {
	case 0: // bytes of any kind, hardly ever UTF-8
		p.body = make([]byte, h.IntN(300))
		for i := range p.body {
			p.body[i] = byte(h.Uint32())
		}
	case 1:
		p.body = []byte("\x00\xff\xfe\x80{\"a\"\xc3\x28}\r\n")
	default:
		p.body = []byte("\ufeff" + h.space() + h.value(3) + h.space())
	}
	return p
}

var modes = []struct {
	name string
	post func(h hostile, id, typ string) post
}{{"plain", hostile.plain}, {"structured", hostile.structured}, {"binary", hostile.binary}}

// byteWorld posts hostile events and holds what arrives against them.
type byteWorld struct {
	*running
	rec *receiver

	mu    sync.Mutex
	posts map[string]post // by webhook-id
}

// lanes is how many endpoints share the events, so that they travel side by side.
const lanes = 6

func (w *byteWorld) answer(rw http.ResponseWriter, a arrival) {
	// Each first attempt fails, so that there is a retry of everything; the next lets the
	// lane go on.
	if a.header.Get("doorstep-attempt") == "1" {
		rw.WriteHeader(500)
		return
	}
	rw.WriteHeader(204)
}

// check holds every arrival against what was posted.
func (w *byteWorld) check() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.rec.seen() {
		p, ok := w.posts[a.id]
		if !ok {
			w.t.Fatalf("%q arrived and was never posted", a.id)
		}
		attempt := a.header.Get("doorstep-attempt")
		if !bytes.Equal(a.body, p.body) {
			w.t.Fatalf("attempt %s of %s has another body:\n%q, want\n%q", attempt, a.id, a.body, p.body)
		}
		for _, name := range p.pass {
			if got := a.header.Values(name); len(got) != 1 || got[0] != p.header.Get(name) {
				w.t.Fatalf("attempt %s of %s has %s: %q, want %q", attempt, a.id, name, got, p.header.Get(name))
			}
		}
		if err := verified(keyA, a); err != nil {
			w.t.Fatalf("attempt %s of %s: %v; body %q", attempt, a.id, err, a.body)
		}
	}
}

// postAll posts n events of each mode to each lane, one lane's after another's end when
// wait is set.
func (w *byteWorld) postAll(phase string, n int, wait bool) {
	w.t.Helper()
	var all sync.WaitGroup
	for lane := range lanes {
		all.Go(func() {
			h := hostile{rand.New(rand.NewPCG(uint64(lane), uint64(len(phase))))} //nolint:gosec // a test
			for i := range n {
				for _, mode := range modes {
					p := mode.post(h, fmt.Sprintf("%s-%s-%d-%d", phase, mode.name, lane, i), fmt.Sprintf("lane.%d", lane))
					status, answer := w.call("POST", eventsPath, p.body, func(q *http.Request) { maps.Copy(q.Header, p.header) })
					if status != 202 {
						w.t.Errorf("%q is answered %d: %s", p.body, status, answer)
						return
					}
					id := decode[ingest.Receipt](w.t, answer).WebhookID
					w.mu.Lock()
					w.posts[id] = p
					w.mu.Unlock()
					if wait {
						await(w.t, "a delivery", func() bool { return w.delivery(id).State == ingest.StateDelivered })
					}
				}
			}
		})
	}
	all.Wait()
}

// Bytes sent are bytes signed are bytes posted: on the first try, on the retry, by a
// later process from the store, and on a replay. cases PF19, PF21, PF22, PF24, PF25,
// PF29, PF30, BDY-01 to BDY-04.
func TestBytesSentAreBytesPosted(t *testing.T) {
	s, rec := newSite(t), newReceiver(t)
	s.write("pool.yaml", poolYAML)
	s.write("quick.yaml", quickYAML)
	for lane := range lanes {
		name := fmt.Sprintf("lane-%d", lane)
		s.write(name+".yaml", secretYAML(name+"-key", keyA)+"---\n"+
			endpointYAML(name, rec.URL, fmt.Sprintf("eventTypes: [lane.%d]", lane), "retryPolicyRef: {name: quick}"))
	}
	w := &byteWorld{running: s.start(), rec: rec, posts: map[string]post{}}
	rec.answer = w.answer
	const n = 12
	w.postAll("first", n, true)
	if got, want := rec.count(), 2*3*lanes*n; got != want {
		t.Errorf("%d arrivals, want each event's first try and retry: %d", got, want)
	}
	w.check()

	s.write("pool.yaml", poolYAML+"  suspend: true\n")
	await(t, "the pause", func() bool { return w.endpoint("lane-0").Lane.State == ingest.LaneSuspended })
	w.postAll("restarted", n, false)
	w.stop()
	s.write("pool.yaml", poolYAML)
	w.running = s.start()
	rec.mu.Lock()
	rec.answer = nil
	rec.mu.Unlock()
	for id := range w.posts {
		await(t, "a delivery by the next process", func() bool { return w.delivery(id).State == ingest.StateDelivered })
	}
	w.check()

	before := rec.count()
	for id := range w.posts {
		if status, answer := w.call("POST", eventsPath+"/"+id+"/replay", []byte(`{"endpoint":"`+w.delivery(id).Endpoint+`","force":true}`)); status >= 300 {
			t.Fatalf("replay of %s is answered %d: %s", id, status, answer)
		}
	}
	replayed := rec.await(t, before+len(w.posts))[before:]
	for _, a := range replayed {
		if a.header.Get("doorstep-replay") != "true" {
			t.Errorf("attempt %s of %s is no replay", a.header.Get("doorstep-attempt"), a.id)
		}
	}
	w.check()

	// What a person reads is the same too.
	for id, p := range w.posts {
		if status, payload := w.call("GET", eventsPath+"/"+id+"/payload", nil); status != 200 || !bytes.Equal(payload, p.body) {
			t.Errorf("the payload of %s is answered %d: %q, want %q", id, status, payload, p.body)
		}
	}
}
