package deliver

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"

	"github.com/doorstep-dev/doorstep/internal/event"
	"github.com/doorstep-dev/doorstep/internal/sign"
)

// maxOwnHeaders is how many headers Doorstep itself sends.
const maxOwnHeaders = 9

// Local faults: nothing is sent, and the endpoint has no part in it.
var (
	errHeader    = errors.New("a header of the event can't be sent")
	errSignature = errors.New("the event can't be signed: there is no key, or its webhook-id can't be signed")
)

// header makes the headers of an attempt (DESIGN.md §6). Names are written in
// their canonical form, as http.Header's methods would have them; values has room
// for those of ours, so that they are not allocated one by one.
func (c *Client) header(r *Request, timestamp int64, values *[maxOwnHeaders]string) (http.Header, error) {
	ev := r.Event
	buf := make([]byte, 0, 128*len(r.Destination.keys))
	signature, err := sign.Sign(buf, r.Destination.keys, ev.WebhookID, timestamp, ev.Body)
	if err != nil {
		return nil, errSignature
	}
	// Without a replay and headers of the event there are 8: the most that a map
	// holds without tables of its own.
	h := make(http.Header, maxOwnHeaders-1+len(ev.Headers))
	n := 0
	set := func(name, value string) {
		values[n] = value
		h[name] = values[n : n+1 : n+1]
		n++
	}
	set("Webhook-Id", ev.WebhookID)
	set("Webhook-Timestamp", strconv.FormatInt(timestamp, 10))
	set("Webhook-Signature", string(signature))
	set("User-Agent", c.userAgent)
	set("Traceparent", traceParent(r.TraceParent))
	set("Doorstep-Delivery-Id", r.DeliveryID)
	set("Doorstep-Attempt", strconv.Itoa(r.AttemptNumber))
	if ev.ContentType != "" {
		set("Content-Type", ev.ContentType)
	}
	if r.Replay {
		set("Doorstep-Replay", "true")
	}
	for i := range ev.Headers {
		if !sendable(&ev.Headers[i]) {
			return nil, errHeader
		}
		h[ev.Headers[i].Name] = []string{ev.Headers[i].Value}
	}
	return h, nil
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
