package harness

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// tolerance is how far a webhook's timestamp may be from now: five minutes, as the
// Standard Webhooks libraries have it.
const tolerance = 5 * time.Minute

// Key is a symmetric Standard Webhooks key in its bytes.
type Key []byte

// ParseKey reads "whsec_" and base64.
func ParseKey(s string) (Key, error) {
	b64, ok := strings.CutPrefix(s, "whsec_")
	if !ok {
		return nil, errors.New("a signing key must begin with whsec_")
	}
	b, err := base64.StdEncoding.DecodeString(b64)
	if err != nil || len(b) < 24 {
		return nil, errors.New("a signing key must be whsec_ and the base64 of 24 bytes or more")
	}
	return b, nil
}

// Sign is the v1 signature of a message, by the Standard Webhooks specification:
// base64 of HMAC-SHA256 over id, a dot, the Unix time in seconds, a dot, the body.
func (k Key) Sign(id, timestamp string, body []byte) string {
	m := hmac.New(sha256.New, k)
	m.Write([]byte(id))
	m.Write([]byte{'.'})
	m.Write([]byte(timestamp))
	m.Write([]byte{'.'})
	m.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(m.Sum(nil))
}

// Verify checks a request's three headers against its body.
func (k Key) Verify(h http.Header, body []byte, now time.Time) error {
	id, ts := h.Get("webhook-id"), h.Get("webhook-timestamp")
	sec, err := strconv.ParseInt(ts, 10, 64)
	if id == "" || err != nil {
		return errors.New("webhook-id or webhook-timestamp is missing or malformed")
	}
	if d := now.Sub(time.Unix(sec, 0)); d > tolerance || d < -tolerance {
		return fmt.Errorf("webhook-timestamp is %v away from now", d.Round(time.Second))
	}
	want := []byte(k.Sign(id, ts, body))
	for got := range strings.FieldsSeq(h.Get("webhook-signature")) {
		if subtle.ConstantTimeCompare([]byte(got), want) == 1 {
			return nil
		}
	}
	return errors.New("no signature of webhook-signature is right")
}
