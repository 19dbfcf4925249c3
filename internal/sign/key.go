package sign

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"strings"
	"sync"
)

// Sizes of a whsec_ key in bytes (Standard Webhooks 1.0.0, "Signature scheme").
const (
	minSecret = 24
	maxSecret = 64
	newSecret = 32
)

// secretPrefix begins the text of an HMAC key.
const secretPrefix = "whsec_"

// Key is one signing key, ready for use. Copies share one state; a Key is safe
// for concurrent use. Printed in any way it shows its fingerprint only. The zero
// Key is not usable.
type Key struct{ k *key }

type key struct {
	fingerprint string
	// public is set for Ed25519 keys; private then too, unless the key only verifies.
	public  ed25519.PublicKey
	private ed25519.PrivateKey
	// states holds *hmacState. Setting up an HMAC costs two hash blocks, a sixth of
	// the whole signature of a 1 KiB body; a state from the pool has them done.
	states sync.Pool
}

// hmacState is a keyed hash with room for what goes in and comes out of it: what
// is handed to a hash.Hash escapes, and would be allocated each time. The room is for
// an id, a time and a hash of 64 bytes; longer texts around the body are allocated.
type hmacState struct {
	mac     hash.Hash
	scratch [128]byte
}

// ParseKey reads a signing key in its text form. There is one rule:
//
//   - whsec_ and standard base64 (with its padding) of 24 to 64 bytes is an
//     HMAC-SHA256 key. The same without the prefix is the same key, as it is for
//     the reference libraries.
//   - whsk_ and standard base64 of 64 bytes, a seed and the public key that belongs
//     to it, is an Ed25519 key.
//   - Anything else is refused, white space around it included: a key is never
//     trimmed or guessed, for a receiver's library may not trim it the same way.
//
// Errors say what is wrong, and never hold any of the text.
func ParseKey(text string) (Key, error) {
	if strings.HasPrefix(text, "whpk_") {
		return Key{}, errors.New("the key is a public one (whpk_), which can't sign; use the private whsk_ key")
	}
	return ParseVerifyKey(text)
}

// ParseVerifyKey reads a key to verify with: all that ParseKey takes and, beside
// them, whpk_ and base64 of the 32 bytes of an Ed25519 public key.
func ParseVerifyKey(text string) (Key, error) {
	if err := checkEncoded(text); err != nil {
		return Key{}, err
	}
	if rest, ok := strings.CutPrefix(text, "whsk_"); ok {
		return parsePrivate(rest)
	}
	if rest, ok := strings.CutPrefix(text, "whpk_"); ok {
		return parsePublic(rest)
	}
	raw, err := decode(strings.TrimPrefix(text, secretPrefix))
	if err != nil {
		return Key{}, err
	}
	if len(raw) < minSecret || len(raw) > maxSecret {
		return Key{}, fmt.Errorf("the key has %d bytes; a whsec_ key must have %d to %d", len(raw), minSecret, maxSecret)
	}
	return newHMAC(raw, sha256.New), nil
}

// NewKey makes the text of a fresh HMAC-SHA256 key: whsec_ and 32 random bytes.
func NewKey() string {
	raw := make([]byte, newSecret)
	_, _ = rand.Read(raw) // never fails: crypto/rand ends the program instead
	return secretPrefix + base64.StdEncoding.EncodeToString(raw)
}

// Fingerprint is a short name of the key that tells nothing about it. The private
// and the public form of an Ed25519 key have the same one.
func (k Key) Fingerprint() string {
	if k.k == nil {
		return "none"
	}
	return k.k.fingerprint
}

// Public is the whpk_ text of an Ed25519 key, for the receiver; empty for others.
func (k Key) Public() string {
	if k.k == nil || k.k.public == nil {
		return ""
	}
	return "whpk_" + base64.StdEncoding.EncodeToString(k.k.public)
}

// String is the fingerprint.
func (k Key) String() string { return k.Fingerprint() }

// Format prints the fingerprint whatever the verb: %+v and %#v would otherwise
// show the fields.
func (k Key) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(k.Fingerprint())) }

// MarshalText gives the fingerprint, so that a key in a logged or encoded value
// stays secret.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.Fingerprint()), nil }

// decode reads what follows the prefix of a Standard Webhooks key.
func decode(s string) ([]byte, error) {
	if s == "" {
		return nil, errors.New("the key is a prefix with nothing after it")
	}
	raw, err := decodeBase64(s)
	if errors.Is(err, errURLSafe) {
		// It may be another prefix as well.
		err = fmt.Errorf("%w, and one of the prefixes whsec_ and whsk_", err)
	}
	return raw, err
}

func parsePrivate(s string) (Key, error) {
	raw, err := decode(s)
	if err != nil {
		return Key{}, err
	}
	if len(raw) != ed25519.PrivateKeySize {
		return Key{}, fmt.Errorf("the key has %d bytes; a whsk_ key must have %d, the seed and the public key", len(raw), ed25519.PrivateKeySize)
	}
	private := ed25519.NewKeyFromSeed(raw[:ed25519.SeedSize])
	if !bytes.Equal(private, raw) {
		return Key{}, errors.New("the public half of the whsk_ key does not belong to its seed")
	}
	k := newPublic(private.Public().(ed25519.PublicKey))
	k.k.private = private
	return k, nil
}

func parsePublic(s string) (Key, error) {
	raw, err := decode(s)
	if err != nil {
		return Key{}, err
	}
	if len(raw) != ed25519.PublicKeySize {
		return Key{}, fmt.Errorf("the key has %d bytes; a whpk_ key must have %d", len(raw), ed25519.PublicKeySize)
	}
	return newPublic(raw), nil
}

func newPublic(public ed25519.PublicKey) Key {
	return Key{&key{public: public, fingerprint: fingerprint("ed25519", public)}}
}

func newHMAC(secret []byte, algorithm func() hash.Hash) Key {
	k := &key{fingerprint: fingerprint("hmac", secret)}
	k.states.New = func() any { return &hmacState{mac: hmac.New(algorithm, secret)} }
	return Key{k}
}

// fingerprint hashes a key under a label of its own, so that it equals no other
// hash of the same bytes.
func fingerprint(kind string, raw []byte) string {
	h := sha256.New()
	h.Write([]byte("doorstep key fingerprint\x00" + kind + "\x00"))
	h.Write(raw)
	return hex.EncodeToString(h.Sum(nil)[:6])
}
