package sign

import (
	"errors"
	"fmt"
	"net/textproto"
	"strconv"
	"time"

	"github.com/doorstep-dev/doorstep/internal/plan"
)

// signatureRoom is how long a header's value may be before it is allocated twice: two
// signatures of Standard Webhooks, one of them Ed25519.
const signatureRoom = 192

// appendStandard signs by Standard Webhooks 1.0.0, once a key.
func (s *Signer) appendStandard(dst []Header, m *Message, now []*Key) []Header {
	var tsRoom [20]byte
	var room [signatureRoom]byte
	ts, value := strconv.AppendInt(tsRoom[:0], m.At.Unix(), 10), room[:0]
	for i, k := range now {
		if i > 0 {
			value = append(value, ' ')
		}
		value = k.k.appendSignature(value, m.ID, ts, m.Body)
	}
	return append(dst, Header{"Webhook-Signature", string(value)})
}

// appendGitHub signs as GitHub does (docs.github.com, "Validating webhook
// deliveries"), and sends the two headers that its receivers route and dedupe by.
func (s *Signer) appendGitHub(dst []Header, m *Message, now []*Key) []Header {
	var room [signatureRoom]byte
	value := now[0].k.appendMAC(append(room[:0], "sha256="...), gitHubContent, inHex, m.ID, nil, m.Body)
	return append(dst,
		Header{"X-Github-Event", m.Type},
		Header{"X-Github-Delivery", m.ID},
		Header{"X-Hub-Signature-256", string(value)})
}

// appendStripe signs as Stripe does (docs.stripe.com/webhooks, "Verify manually"), with
// one v1 a key.
func (s *Signer) appendStripe(dst []Header, m *Message, now []*Key) []Header {
	var tsRoom [20]byte
	var room [signatureRoom]byte
	ts := strconv.AppendInt(tsRoom[:0], m.At.Unix(), 10)
	value := append(append(room[:0], "t="...), ts...)
	for _, k := range now {
		value = k.k.appendMAC(append(value, ",v1="...), stripeContent, inHex, m.ID, ts, m.Body)
	}
	return append(dst, Header{"Stripe-Signature", string(value)})
}

// hmacScheme is plan.HMAC, read.
type hmacScheme struct {
	header, timestampHeader string // canonical; the latter may be empty
	prefix, content         template
	in                      encoding
	unit                    string
}

// CheckHMAC returns nil for a description that a Signer can sign by. The error names
// the field.
func CheckHMAC(h *plan.HMAC) error {
	_, err := newHMACScheme(h)
	return err
}

func newHMACScheme(h *plan.HMAC) (*hmacScheme, error) {
	if h == nil {
		return nil, errNoHMAC
	}
	if h.Header == "" {
		return nil, errors.New("hmac.header is empty; name the header that holds the signature")
	}
	if _, err := hashFor(h.Algorithm); err != nil {
		return nil, fmt.Errorf("hmac.algorithm: %w", err)
	}
	if h.KeyEncoding != encodingText && h.KeyEncoding != encodingBase64 && h.KeyEncoding != encodingHex {
		return nil, fmt.Errorf("hmac.keyEncoding: %w", errEncoding(h.KeyEncoding))
	}
	s := &hmacScheme{
		header:          textproto.CanonicalMIMEHeaderKey(h.Header),
		timestampHeader: textproto.CanonicalMIMEHeaderKey(h.TimestampHeader),
	}
	if s.header == s.timestampHeader {
		return nil, errors.New("hmac.header and hmac.timestamp.header are the same header; give the time another one")
	}
	var err error
	if s.content, err = parseTemplate(h.Content); err != nil {
		return nil, fmt.Errorf("hmac.content: %w", err)
	}
	if s.content.count(fieldBody) != 1 {
		return nil, errors.New("hmac.content must hold {body} exactly once, since an unsigned body can be forged")
	}
	if s.prefix, err = parseTemplate(h.Prefix); err != nil || s.prefix.count(fieldBody) != 0 {
		return nil, errors.New("hmac.prefix: only {id} and {timestamp} may stand in braces")
	}
	switch h.Encoding {
	case encodingHex:
		s.in = inHex
	case encodingBase64:
		s.in = inBase64
	default:
		return nil, fmt.Errorf("hmac.encoding: %w", errEncoding(h.Encoding))
	}
	switch s.unit = h.TimestampUnit; s.unit {
	case unitSeconds, unitMilliseconds, unitRFC3339:
	default:
		return nil, fmt.Errorf("hmac.timestamp.unit: the unit %q is not known here", h.TimestampUnit)
	}
	return s, nil
}

// timestamp appends the time as the receiver wants it; a date has whole seconds, since
// many parsers want no fraction.
func (h *hmacScheme) timestamp(dst []byte, at time.Time) []byte {
	switch h.unit {
	case unitMilliseconds:
		return strconv.AppendInt(dst, at.UnixMilli(), 10)
	case unitRFC3339:
		return at.UTC().AppendFormat(dst, time.RFC3339)
	}
	return strconv.AppendInt(dst, at.Unix(), 10)
}

// appendHMAC signs as the endpoint describes it.
func (s *Signer) appendHMAC(dst []Header, m *Message, now []*Key) []Header {
	var tsRoom [32]byte
	var room [signatureRoom]byte
	ts := s.hmac.timestamp(tsRoom[:0], m.At)
	if s.hmac.timestampHeader != "" {
		dst = append(dst, Header{s.hmac.timestampHeader, string(ts)})
	}
	return append(dst, Header{s.hmac.header, string(s.hmac.value(room[:0], now[0].k, m.ID, ts, m.Body))})
}

// value appends the value of the header with the signature.
func (h *hmacScheme) value(dst []byte, k *key, id string, ts, body []byte) []byte {
	dst = h.prefix.text(dst, id, ts)
	return k.appendMAC(dst, h.content, h.in, id, ts, body)
}
