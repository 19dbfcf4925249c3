package sign

import (
	"fmt"
	"strconv"
	"time"

	"github.com/doorstep-dev/doorstep/internal/plan"
)

// Message is what one attempt signs.
type Message struct {
	// ID is the webhook-id.
	ID string
	// Type is the event's type.
	Type string
	// At is the wall time of the attempt: its Unix seconds are sent as webhook-timestamp,
	// and it decides which keys have begun and which have expired.
	At time.Time
	// Steady is the steady time of the attempt, by which former keys end.
	Steady time.Time
	// Body is signed as it is.
	Body []byte
}

// Header is a header to send. Name is in canonical form.
type Header struct{ Name, Value string }

// Signer signs the attempts of one endpoint by its scheme and with the keys that hold
// at the time of each. It is safe for concurrent use.
type Signer struct {
	scheme string
	keys   []timedKey
	single bool        // the newest key signs alone
	hmac   *hmacScheme // of SchemeHMAC
}

// timedKey is a key and when it signs.
type timedKey struct {
	Key
	notBefore, expiresAt, formerUntil time.Time
}

// signs reports whether the key signs at the wall time at and the steady time steady.
// A key begins at its notBefore, and has ended at its expiresAt.
func (k *timedKey) signs(at, steady time.Time) bool {
	return !at.Before(k.notBefore) &&
		(k.expiresAt.IsZero() || at.Before(k.expiresAt)) &&
		(k.formerUntil.IsZero() || steady.Before(k.formerUntil))
}

// NewSigner makes the Signer of an endpoint. It is ErrNoKey where the scheme needs a
// key and there is none; other errors say what is wrong with the key or the scheme they
// name, and hold nothing of a key's text.
func NewSigner(s plan.Signing) (*Signer, error) {
	signer := &Signer{scheme: s.Scheme}
	switch s.Scheme {
	case plan.SchemeStandardWebhooks, plan.SchemeStripe:
	case plan.SchemeGitHub:
		signer.single = true
	case plan.SchemeHMAC:
		var err error
		if signer.hmac, err = newHMACScheme(s.HMAC); err != nil {
			return nil, err
		}
		signer.single = true
	case plan.SchemeNone:
		return signer, nil
	default:
		return nil, fmt.Errorf("the signature scheme %q is not known here; a newer Doorstep may know it", s.Scheme)
	}
	for _, k := range s.Keys {
		key, err := ParseKeyFor(&s, k.Key)
		if err != nil {
			return nil, fmt.Errorf("signing key %s: %w", k.Name, err)
		}
		signer.keys = append(signer.keys, timedKey{key, k.NotBefore, k.ExpiresAt, k.FormerUntil})
	}
	if len(signer.keys) == 0 {
		return nil, ErrNoKey
	}
	return signer, nil
}

// CanSign reports whether any message could be signed at the wall time at and the
// steady time steady.
func (s *Signer) CanSign(at, steady time.Time) bool {
	var room [maxAtOnce]*Key
	return s.scheme == plan.SchemeNone || len(s.now(room[:0], at, steady)) > 0
}

// AppendHeaders appends the headers that identify and sign a message: webhook-id and
// webhook-timestamp always, for receivers dedupe by the one and order by the other, and
// those of the scheme. On an error (ErrNoKey, ErrID) nothing is appended: nothing must
// be sent unsigned.
func (s *Signer) AppendHeaders(dst []Header, m *Message) ([]Header, error) {
	if !signable(m.ID) {
		return dst, ErrID
	}
	var room [maxAtOnce]*Key
	now := s.now(room[:0], m.At, m.Steady)
	if s.scheme != plan.SchemeNone && len(now) == 0 {
		return dst, ErrNoKey
	}
	dst = append(dst,
		Header{"Webhook-Id", m.ID},
		Header{"Webhook-Timestamp", strconv.FormatInt(m.At.Unix(), 10)})
	switch s.scheme {
	case plan.SchemeStandardWebhooks:
		dst = s.appendStandard(dst, m, now)
	case plan.SchemeGitHub:
		dst = s.appendGitHub(dst, m, now)
	case plan.SchemeStripe:
		dst = s.appendStripe(dst, m, now)
	case plan.SchemeHMAC:
		dst = s.appendHMAC(dst, m, now)
	}
	return dst, nil
}

// maxAtOnce is how many keys there is room for without an allocation: the most keys of
// an endpoint, and as many former ones.
const maxAtOnce = 10

// now appends the keys that sign. Where there is room for one signature only, that is
// the newest: the one that began last, or the first of the list among equals. A former
// value is never the newest, for its successor is there.
func (s *Signer) now(dst []*Key, at, steady time.Time) []*Key {
	var newest *timedKey
	for i := range s.keys {
		k := &s.keys[i]
		switch {
		case !k.signs(at, steady):
		case !s.single:
			dst = append(dst, &k.Key)
		case k.formerUntil.IsZero() && (newest == nil || k.notBefore.After(newest.notBefore)):
			newest = k
		}
	}
	if newest != nil {
		dst = append(dst, &newest.Key)
	}
	return dst
}
