package sign

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
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
	if !signable(id) {
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

// signable refuses ids that leave room for doubt where they end.
func signable(id string) bool { return id != "" && strings.IndexByte(id, '.') < 0 }

// appendSignature appends one "v1,…" or "v1a,…".
func (k *key) appendSignature(dst []byte, id string, ts, body []byte) []byte {
	if k.private != nil {
		dst = append(dst, "v1a,"...)
		return base64.StdEncoding.AppendEncode(dst, ed25519.Sign(k.private, message(id, ts, body)))
	}
	return k.appendMAC(append(dst, "v1,"...), standardContent, inBase64, id, ts, body)
}

// encoding is how bytes are written as text. It is no function, for what is handed to
// one through a value is allocated.
type encoding byte

const (
	inHex encoding = iota
	inBase64
)

func (e encoding) append(dst, src []byte) []byte {
	if e == inHex {
		return hex.AppendEncode(dst, src)
	}
	return base64.StdEncoding.AppendEncode(dst, src)
}

// appendMAC appends the HMAC of content for a message. The body is handed to the hash
// as it is; what stands around it is gathered first.
func (k *key) appendMAC(dst []byte, content template, in encoding, id string, ts, body []byte) []byte {
	s := k.states.Get().(*hmacState)
	s.mac.Reset()
	around := s.scratch[:0]
	for i := range content {
		if content[i].field != fieldBody {
			around = content[i].append(around, id, ts)
			continue
		}
		s.mac.Write(around)
		s.mac.Write(body)
		around = around[:0]
	}
	s.mac.Write(around)
	dst = in.append(dst, s.mac.Sum(s.scratch[:0]))
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
