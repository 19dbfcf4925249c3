package sign

import (
	"crypto/ed25519"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// DefaultTolerance is what every reference library allows a timestamp to be off.
const DefaultTolerance = 5 * time.Minute

// maxSignatures bounds the work that a header made to be long can cause.
const maxSignatures = 32

// Why a message is refused, beside *SkewError and ErrID.
var (
	ErrMissing   = errors.New("webhook-id, webhook-timestamp or webhook-signature is missing")
	ErrTimestamp = errors.New("the timestamp is not a number of seconds")
	ErrSignature = errors.New("no signature matches")
)

// SkewError says that a timestamp is outside the tolerance.
type SkewError struct {
	// Seconds the timestamp is ahead of now; negative when it lies behind.
	Seconds int64
}

// Error says by how much the timestamp is off.
func (e *SkewError) Error() string {
	if e.Seconds < 0 {
		return fmt.Sprintf("the timestamp is %d s old", -e.Seconds)
	}
	return fmt.Sprintf("the timestamp is %d s ahead", e.Seconds)
}

// Verify checks one received message: the values of its webhook-id,
// webhook-timestamp and webhook-signature headers and its body as received. It
// is nil when the timestamp is within tolerance of now, in whole seconds, both
// ways and inclusive, and any signature of a version known here (v1, v1a) is by
// any of the keys. Signatures are compared in constant time.
func Verify(keys []Key, id, timestamp, signatures string, body []byte, now time.Time, tolerance time.Duration) error {
	if id == "" || timestamp == "" || signatures == "" {
		return ErrMissing
	}
	if strings.IndexByte(id, '.') >= 0 {
		return ErrID
	}
	ts, err := parseTimestamp(timestamp)
	if err != nil {
		return err
	}
	if err := checkSkew(ts, now, tolerance); err != nil {
		return err
	}
	list := strings.Split(signatures, " ")
	if len(list) > maxSignatures {
		return ErrSignature
	}
	matched := false
	for i := range keys {
		if keys[i].k != nil && keys[i].k.matches(list, id, timestamp, body) {
			matched = true
		}
	}
	if !matched {
		return ErrSignature
	}
	return nil
}

// checkSkew holds a timestamp to a tolerance, both ways and inclusive.
func checkSkew(ts int64, now time.Time, tolerance time.Duration) error {
	if skew := ts - now.Unix(); max(skew, -skew) > int64(tolerance/time.Second) {
		return &SkewError{Seconds: skew}
	}
	return nil
}

// matches says whether any signature of the list is by this key.
func (k *key) matches(list []string, id, ts string, body []byte) bool {
	version, msg := "v1", []byte(nil)
	var want []byte
	if k.public != nil {
		version, msg = "v1a", message(id, []byte(ts), body)
	} else {
		want = k.appendMAC(nil, standardContent, inBase64, id, []byte(ts), body)
	}
	found := false
	for _, s := range list {
		v, sig, ok := strings.Cut(s, ",")
		if !ok || v != version {
			continue
		}
		if k.public == nil {
			found = subtle.ConstantTimeCompare([]byte(sig), want) == 1 || found
			continue
		}
		raw, err := base64.StdEncoding.DecodeString(sig)
		found = err == nil && len(raw) == ed25519.SignatureSize && ed25519.Verify(k.public, msg, raw) || found
	}
	return found
}

// parseTimestamp takes Unix seconds as Doorstep writes them: digits, no sign, no
// space, no leading zero. What was signed is the text, so only one text may stand
// for a number.
func parseTimestamp(s string) (int64, error) {
	if len(s) > 12 || (len(s) > 1 && s[0] == '0') {
		return 0, ErrTimestamp
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, ErrTimestamp
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, ErrTimestamp
	}
	return n, nil
}
