package sign

import (
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"strings"
	"unicode/utf8"

	"github.com/doorstep-dev/doorstep/internal/plan"
)

// How plan.HMAC names its choices.
const (
	algorithmSHA1   = "SHA1"
	algorithmSHA256 = "SHA256"
	algorithmSHA512 = "SHA512"

	encodingHex    = "Hex"
	encodingBase64 = "Base64"
	encodingText   = "Text"

	unitSeconds      = "Seconds"
	unitMilliseconds = "Milliseconds"
	unitRFC3339      = "RFC3339"
)

// ParseKeyFor reads a key by the rule of an endpoint's scheme, for the same text is
// another key under another one:
//
//   - StandardWebhooks: as ParseKey.
//   - GitHub and Stripe: the whole text is the key, a whsec_ in front included.
//   - HMAC: as its KeyEncoding says, Text (the text itself), Base64 (standard, padded)
//     or Hex (either case).
//
// A text key is UTF-8 without control characters, and no key has white space around
// it: nothing is trimmed or guessed. With None there is no key to read. Errors say what
// is wrong, and never hold any of the text.
func ParseKeyFor(s *plan.Signing, text string) (Key, error) {
	switch s.Scheme {
	case plan.SchemeStandardWebhooks:
		return ParseKey(text)
	case plan.SchemeGitHub, plan.SchemeStripe:
		return parseSecret(text, encodingText, algorithmSHA256)
	case plan.SchemeHMAC:
		if s.HMAC == nil {
			return Key{}, errNoHMAC
		}
		return parseSecret(text, s.HMAC.KeyEncoding, s.HMAC.Algorithm)
	}
	return Key{}, fmt.Errorf("the scheme %q signs with no key", s.Scheme)
}

// GenerateKey makes the text of a fresh key for a scheme: 32 random bytes as
// ParseKeyFor reads them. Where the text itself is the key it looks like any other
// whsec_ key.
func GenerateKey(s *plan.Signing) string {
	text := NewKey()
	if s.Scheme != plan.SchemeHMAC || s.HMAC == nil {
		return text
	}
	b64 := strings.TrimPrefix(text, secretPrefix)
	switch s.HMAC.KeyEncoding {
	case encodingBase64:
		return b64
	case encodingHex:
		raw, _ := base64.StdEncoding.DecodeString(b64) // it was encoded just now
		return hex.EncodeToString(raw)
	}
	return text
}

var errNoHMAC = errors.New("scheme HMAC without its description")

// parseSecret reads a key that is shared with the receiver.
func parseSecret(text, encoding, algorithm string) (Key, error) {
	newHash, err := hashFor(algorithm)
	if err != nil {
		return Key{}, err
	}
	if err := checkAround(text); err != nil {
		return Key{}, err
	}
	raw := []byte(text)
	switch encoding {
	case encodingText:
		if err := checkPlainText(text); err != nil {
			return Key{}, err
		}
	case encodingBase64:
		raw, err = decodeBase64(text)
	case encodingHex:
		raw, err = decodeHex(text)
	default:
		err = errEncoding(encoding)
	}
	if err != nil {
		return Key{}, err
	}
	return newHMAC(raw, newHash), nil
}

func errEncoding(name string) error { return fmt.Errorf("the encoding %q is not known here", name) }

func hashFor(algorithm string) (func() hash.Hash, error) {
	switch algorithm {
	case algorithmSHA1:
		return sha1.New, nil
	case algorithmSHA256:
		return sha256.New, nil
	case algorithmSHA512:
		return sha512.New, nil
	}
	return nil, fmt.Errorf("the algorithm %q is not known here", algorithm)
}

// checkAround refuses what a person can't see at either end of a key.
func checkAround(text string) error {
	switch {
	case text == "":
		return errors.New("the key is empty")
	case strings.HasSuffix(text, "\n"), strings.HasSuffix(text, "\r"):
		return errors.New("the key ends in a trailing newline; write it without one (printf or echo -n)")
	case strings.TrimSpace(text) != text:
		return errors.New("the key has white space around it; write it without")
	}
	return nil
}

// checkEncoded refuses in a key that is to be decoded what base64 would skip.
func checkEncoded(text string) error {
	if err := checkAround(text); err != nil {
		return err
	}
	if strings.ContainsAny(text, " \t\r\n") {
		return errors.New("the key has white space in it; write it on one line")
	}
	return nil
}

// checkPlainText refuses bytes that don't pass through texts as they are: the plan is
// JSON, and would hold another key.
func checkPlainText(text string) error {
	if !utf8.ValidString(text) {
		return errors.New("the key is not UTF-8 text, and it is used as it is written; make it of letters and digits, or use scheme HMAC with keyEncoding Base64 or Hex")
	}
	for _, r := range text {
		if r < ' ' || r == 0x7f {
			return errors.New("the key has a control character in it, such as a newline; write it on one line of plain text")
		}
	}
	return nil
}

func decodeBase64(s string) ([]byte, error) {
	if err := checkEncoded(s); err != nil {
		return nil, err
	}
	raw, err := base64.StdEncoding.DecodeString(s)
	if err == nil {
		return raw, nil
	}
	// The decoder's own error would tell a position, and so something of the key.
	if strings.ContainsAny(s, "-_") {
		return nil, errURLSafe
	}
	if _, err := base64.RawStdEncoding.DecodeString(s); err == nil {
		return nil, errors.New("the key is base64 without its padding; add the = signs at its end")
	}
	return nil, errors.New("the key is not base64")
}

var errURLSafe = errors.New("the key is not standard base64: it has - or _, as the URL-safe alphabet does; use + and /")

func decodeHex(s string) ([]byte, error) {
	if err := checkEncoded(s); err != nil {
		return nil, err
	}
	raw, err := hex.DecodeString(s)
	if err == nil {
		return raw, nil
	}
	if len(s)%2 != 0 {
		return nil, errors.New("the key is not hex: it has an odd number of characters")
	}
	return nil, errors.New("the key is not hex: use the digits 0 to 9 and a to f, without a prefix")
}
