package sign

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
)

// Faults of the one who signs.
var (
	ErrNoKey = errors.New("there is no key to sign with")
	ErrID    = errors.New("the webhook-id is empty or holds a dot")
)

// Sign appends the value of a webhook-signature header to dst: one signature per
// key, in their order, parted by spaces. timestamp is in Unix seconds and must be
// sent as webhook-timestamp; body is signed as it is. On an error (ErrNoKey,
// ErrID) nothing is appended: nothing must be sent unsigned.
func Sign(dst []byte, keys []Key, id string, timestamp int64, body []byte) ([]byte, error) {
	if id == "" || strings.IndexByte(id, '.') >= 0 {
		return dst, ErrID
	}
	for i := range keys {
		if k := keys[i].k; k == nil || (k.public != nil && k.private == nil) {
			return dst, ErrNoKey
		}
	}
	if len(keys) == 0 {
		return dst, ErrNoKey
	}
	var buf [20]byte
	ts := strconv.AppendInt(buf[:0], timestamp, 10)
	for i := range keys {
		if i > 0 {
			dst = append(dst, ' ')
		}
		dst = keys[i].k.appendSignature(dst, id, ts, body)
	}
	return dst, nil
}

// appendSignature appends one "v1,…" or "v1a,…".
func (k *key) appendSignature(dst []byte, id string, ts, body []byte) []byte {
	if k.private != nil {
		dst = append(dst, "v1a,"...)
		return base64.StdEncoding.AppendEncode(dst, ed25519.Sign(k.private, message(id, ts, body)))
	}
	dst = append(dst, "v1,"...)
	return k.appendMAC(dst, id, ts, body)
}

// appendMAC appends the base64 of the HMAC.
func (k *key) appendMAC(dst []byte, id string, ts, body []byte) []byte {
	s := k.states.Get().(*hmacState)
	s.mac.Reset()
	head := s.scratch[:0]
	head = append(head, id...)
	head = append(head, '.')
	head = append(head, ts...)
	head = append(head, '.')
	s.mac.Write(head)
	s.mac.Write(body)
	dst = base64.StdEncoding.AppendEncode(dst, s.mac.Sum(s.scratch[:0])[:sha256.Size])
	k.states.Put(s)
	return dst
}

// message is what is signed: "{id}.{timestamp}.{body}".
func message(id string, ts, body []byte) []byte {
	m := make([]byte, 0, len(id)+len(ts)+len(body)+2)
	m = append(m, id...)
	m = append(m, '.')
	m = append(m, ts...)
	m = append(m, '.')
	return append(m, body...)
}
