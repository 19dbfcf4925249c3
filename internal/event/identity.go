package event

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"hash"
	"strings"
	"sync"
)

// derivedPrefix begins each derived webhook-id; derivedLength characters follow it.
const (
	derivedPrefix = "msg_"
	derivedLength = 26
)

var lowerBase32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// WebhookID returns the receiver's dedupe key for an identity: the id itself where source is empty and the id matches
// [A-Za-z0-9_-]{1,64} and not msg_[a-z2-7]{26}; otherwise msg_ and the first 26 characters of lower-case RFC 4648
// base32 of SHA-256(uint32be(len(source)) ‖ source ‖ id).
//
// The result is the same for ever, holds no '.', and is safe in headers and paths (DESIGN.md §5).
func WebhookID(source, id string) string {
	if source == "" && isSafeID(id) && !looksDerived(id) {
		return id
	}
	var space [512]byte
	in := binary.BigEndian.AppendUint32(space[:0], uint32(len(source)))
	in = append(in, source...)
	in = append(in, id...)
	sum := sha256.Sum256(in)

	var out [len(derivedPrefix) + 32]byte
	copy(out[:], derivedPrefix)
	lowerBase32.Encode(out[len(derivedPrefix):], sum[:20])
	return string(out[:len(derivedPrefix)+derivedLength])
}

func isSafeID(id string) bool {
	if len(id) == 0 || len(id) > 64 {
		return false
	}
	for i := range len(id) {
		c := id[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-') {
			return false
		}
	}
	return true
}

// looksDerived keeps a producer's id from taking the place of a derived one.
func looksDerived(id string) bool {
	rest, ok := strings.CutPrefix(id, derivedPrefix)
	if !ok || len(rest) != derivedLength {
		return false
	}
	for i := range len(rest) {
		c := rest[i]
		if !(c >= 'a' && c <= 'z' || c >= '2' && c <= '7') {
			return false
		}
	}
	return true
}

// hasher is a reusable SHA-256 state; space is here because what is given to an interface's Write is heap-allocated.
type hasher struct {
	sum   hash.Hash
	space [256]byte
}

var hashers = sync.Pool{New: func() any { return &hasher{sum: sha256.New()} }}

// hashEvent sets e.Hash to SHA-256(n ‖ n × (uint32be(len(field)) ‖ field) ‖ body), where n is one byte. The fields are
// the content type and, in binary mode, id, source, type, subject and dataschema: what the body does not hold itself.
func hashEvent(e *Event, dataschema string) {
	h := hashers.Get().(*hasher)
	h.sum.Reset()
	fields := [...]string{e.ContentType, e.ID, e.Source, e.Type, e.Subject, dataschema}
	used := fields[:1]
	if e.Mode == ModeBinary {
		used = fields[:]
	}
	prefix := append(h.space[:0], byte(len(used)))
	for _, f := range used {
		prefix = binary.BigEndian.AppendUint32(prefix, uint32(len(f)))
		prefix = append(prefix, f...)
	}
	h.sum.Write(prefix)
	h.sum.Write(e.Body)
	h.sum.Sum(e.Hash[:0])
	hashers.Put(h)
}
