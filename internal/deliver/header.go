package deliver

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/doorstep-dev/doorstep/internal/event"
	"github.com/doorstep-dev/doorstep/internal/sign"
)

// maxOwnHeaders is the most headers that Doorstep itself sends, those of signatures (at
// most five) among them.
const maxOwnHeaders = 12

// Local faults: nothing is sent, and the endpoint has no part in it.
var (
	errHeader    = errors.New("a header of the event can't be sent")
	errSignature = errors.New("the event can't be signed: there is no key that signs now, or its webhook-id can't be signed")
)

// header makes the headers of a request (DESIGN.md §6), with the token if there is one.
// Names are written in their canonical form, as http.Header's methods would have them;
// values has room for those of ours, so that they are not allocated one by one. Ours are
// set last: whatever an endpoint sets, they are what they are.
func (p *post) header(at time.Time, token string, values *[maxOwnHeaders]string) (http.Header, error) {
	r, ev, to := p.request, p.request.Event, p.request.Destination
	var room [maxOwnHeaders]sign.Header
	signed, err := to.signer.AppendHeaders(room[:0], &sign.Message{ID: ev.WebhookID, Type: ev.Type, At: at, Steady: r.Steady, Body: p.body})
	if err != nil {
		return nil, errSignature
	}
	// With one signature, without a replay and headers of event and endpoint, there are 8:
	// the most that a map holds without tables of its own.
	h := make(http.Header, 5+len(signed)+len(ev.Headers)+len(to.fixed)+len(to.fromEvent))
	for i := range to.fixed {
		h[to.fixed[i].name] = to.fixed[i].values
	}
	for i := range to.fromEvent {
		if v, ok := eventValue(ev, to.fromEvent[i].Event); ok {
			h[to.fromEvent[i].Name] = []string{v}
		}
	}
	if !to.dataOnly {
		for i := range ev.Headers {
			if !sendable(&ev.Headers[i]) {
				return nil, errHeader
			}
			h[ev.Headers[i].Name] = []string{ev.Headers[i].Value}
		}
	}
	n := 0
	set := func(name, value string) {
		values[n] = value
		h[name] = values[n : n+1 : n+1]
		n++
	}
	for i := range signed {
		set(signed[i].Name, signed[i].Value)
	}
	set("User-Agent", p.client.userAgent)
	set("Traceparent", traceParent(r.TraceParent))
	set("Doorstep-Delivery-Id", r.DeliveryID)
	set("Doorstep-Attempt", strconv.Itoa(r.AttemptNumber))
	if p.contentType != "" {
		set("Content-Type", p.contentType)
	}
	if r.Replay {
		set("Doorstep-Replay", "true")
	}
	if token != "" {
		set("Authorization", "Bearer "+token)
	}
	return h, nil
}

// eventValue is what an event has for the source of a header (plan.Header.Event), as a
// header can hold it; false for nothing.
func eventValue(ev *event.Event, source string) (string, bool) {
	var text string
	switch source {
	case "id":
		text = ev.ID
	case "type":
		text = ev.Type
	case "source":
		text = ev.Source
	case "subject":
		text = ev.Subject
	case "time":
		if !ev.Time.IsZero() {
			text = ev.Time.UTC().Format(time.RFC3339Nano)
		}
	default:
		name := strings.TrimPrefix(source, "attributes.")
		for i := range ev.Attributes {
			if ev.Attributes[i].Name == name {
				text = ev.Attributes[i].Value
			}
		}
	}
	if text == "" {
		return "", false
	}
	return string(event.AppendHeaderValue(make([]byte, 0, len(text)), text)), true
}

// sendable takes a CloudEvents header as package event gives them: "ce-" and
// lower-case letters and digits, a value without control characters. Nothing an
// event holds can become another header, or one of ours.
func sendable(h *event.Header) bool {
	if len(h.Name) < 4 || h.Name[:3] != "ce-" {
		return false
	}
	for i := 3; i < len(h.Name); i++ {
		if c := h.Name[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	for i := range len(h.Value) {
		if c := h.Value[i]; (c < ' ' && c != '\t') || c == 0x7f {
			return false
		}
	}
	return true
}

// traceParent goes on with the producer's trace under a span of this attempt, or
// begins a trace that isn't sampled (W3C Trace Context §3.2).
func traceParent(producer string) string {
	var b [55]byte
	if validTraceParent(producer) {
		copy(b[:], producer)
		copy(b[:2], "00")
	} else {
		copy(b[:], "00-")
		appendID(b[3:3])
		appendID(b[19:19])
		b[35], b[52], b[53], b[54] = '-', '-', '0', '0'
	}
	appendID(b[36:36])
	return string(b[:])
}

// appendID appends 16 random hex digits, never all zero.
func appendID(dst []byte) {
	var raw [8]byte
	binary.BigEndian.PutUint64(raw[:], rand.Uint64()|1)
	hex.AppendEncode(dst, raw[:])
}

// validTraceParent checks only what keeps the header well-formed: ingest took no
// other kind.
func validTraceParent(s string) bool {
	if len(s) != 55 || s[:3] == "ff-" || s[3:35] == "00000000000000000000000000000000" {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if i == 2 || i == 35 || i == 52 {
			if c != '-' {
				return false
			}
		} else if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
