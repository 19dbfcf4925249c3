package sign

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/plan"
)

// cases SG38, SG42 for the schemes beside Standard Webhooks
func TestParseKeyFor(t *testing.T) {
	github, stripe := plan.Signing{Scheme: plan.SchemeGitHub}, plan.Signing{Scheme: plan.SchemeStripe}
	encoded := func(e string) plan.Signing { return hmacOf(func(h *plan.HMAC) { h.KeyEncoding = e }) }
	for _, row := range []struct {
		name    string
		signing plan.Signing
		text    string
		want    string // part of the error; empty: taken
	}{
		{"GitHub, words", github, "It's a Secret to Everybody", ""},
		{"GitHub, one character", github, "k", ""},
		{"GitHub, other letters", github, "schlüssel", ""},
		{"Stripe, whsec_", stripe, "whsec_test_secret", ""},
		{"Stripe, what is no base64", stripe, "whsec_-_-", ""},
		{"HMAC, text", encoded("Text"), "a key with spaces", ""},
		{"HMAC, base64", encoded("Base64"), "aGVsbG8sIHdvcmxkIQ==", ""},
		{"HMAC, hex in upper case", encoded("Hex"), "44782DEF", ""},
		{"HMAC, hex in lower case", encoded("Hex"), "44782def", ""},

		{"empty", github, "", "empty"},
		{"trailing newline", github, "secret\n", "trailing newline"},
		{"trailing CR LF", stripe, "whsec_secret\r\n", "trailing newline"},
		{"leading space", github, " secret", "white space around"},
		{"trailing space", encoded("Text"), "secret ", "white space around"},
		{"leading no-break space", encoded("Text"), "\u00a0secret", "white space around"},
		{"two lines", github, "secret\nsecret2", "control character"},
		{"NUL", github, "sec\x00ret", "control character"},
		{"no UTF-8", encoded("Text"), "\xff\xfe\x00\x01", "not UTF-8"},
		{"base64, trailing newline", encoded("Base64"), "aGVsbG8=\n", "trailing newline"},
		{"base64 on two lines", encoded("Base64"), "aGVs\nbG8=", "white space in it"},
		{"base64 unpadded", encoded("Base64"), "aGVsbG8sIHdvcmxkIQ", "without its padding"},
		{"base64 in the URL-safe alphabet", encoded("Base64"), "_-_-", "not standard base64"},
		{"base64 with whsec_", encoded("Base64"), secretA, "not standard base64"},
		{"no base64", encoded("Base64"), "********", "not base64"},
		{"hex, trailing newline", encoded("Hex"), "44782def\n", "trailing newline"},
		{"hex, odd", encoded("Hex"), "44782de", "odd number"},
		{"hex with 0x", encoded("Hex"), "0x44782def", "not hex"},
		{"no hex", encoded("Hex"), "sixteen-letters.", "not hex"},
		{"another encoding", encoded("Base32"), "ORSXG5A=", "not known here"},
		{"another algorithm", hmacOf(func(h *plan.HMAC) { h.Algorithm = "MD5" }), "k", "not known here"},
		{"None", plan.Signing{Scheme: plan.SchemeNone}, "k", "signs with no key"},
		{"HMAC without its description", plan.Signing{Scheme: plan.SchemeHMAC}, "k", "without its description"},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := ParseKeyFor(&row.signing, row.text)
			switch {
			case row.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)):
				t.Errorf("err = %v, want one that says %q", err, row.want)
			}
			if err != nil && len(row.text) > 4 && strings.Contains(err.Error(), strings.TrimSpace(row.text)) {
				t.Errorf("the error holds the key: %v", err)
			}
		})
	}
}

// A generated key is 32 random bytes, and a key of its scheme.
func TestGenerateKey(t *testing.T) {
	for _, s := range []plan.Signing{
		standard(), {Scheme: plan.SchemeGitHub}, {Scheme: plan.SchemeStripe},
		hmacOf(nil), hmacOf(func(h *plan.HMAC) { h.KeyEncoding = "Base64" }), hmacOf(func(h *plan.HMAC) { h.KeyEncoding = "Hex" }),
	} {
		a, b := GenerateKey(&s), GenerateKey(&s)
		_, err := ParseKeyFor(&s, a)
		if a == b || err != nil {
			t.Errorf("%s: %v, or the same key twice", s.Scheme, err)
		}
		encoding := ""
		if s.HMAC != nil {
			encoding = s.HMAC.KeyEncoding
		}
		if want := map[string]int{"Base64": 44, "Hex": 64}[encoding]; want != 0 && len(a) != want || want == 0 && len(a) != len("whsec_")+44 {
			t.Errorf("%s %s: a key of %d characters", s.Scheme, encoding, len(a))
		}
	}
}

// case SG40: what NewSigner says of a bad key names it and holds nothing of it.
func TestNewSignerNamesWhatIsWrong(t *testing.T) {
	const bad = "whsec_c2VjcmV0IQ==" // 7 bytes
	described := func(change func(*plan.HMAC)) plan.Signing { return hmacOf(change, "k") }
	for _, row := range []struct {
		name    string
		signing plan.Signing
		want    string
	}{
		{"no key", standard(), ErrNoKey.Error()},
		{"the second key", standard(secretA, bad), "signing key k1: the key has 7 bytes"},
		{"unknown scheme", plan.Signing{Scheme: "Carrier-Pigeon"}, `"Carrier-Pigeon" is not known here`},
		{"no scheme", plan.Signing{}, `"" is not known here`},
		{"HMAC without its description", plan.Signing{Scheme: plan.SchemeHMAC}, "without its description"},
		{"no header", described(func(h *plan.HMAC) { h.Header = "" }), "hmac.header is empty"},
		{"one header for both", described(func(h *plan.HMAC) { h.TimestampHeader = "x-signature" }), "the same header"},
		{"content without body", described(func(h *plan.HMAC) { h.Content = "{id}" }), "{body} exactly once"},
		{"content with two bodies", described(func(h *plan.HMAC) { h.Content = "{body}{body}" }), "{body} exactly once"},
		{"content with another field", described(func(h *plan.HMAC) { h.Content = "{url}{body}" }), "hmac.content: only"},
		{"content with a brace", described(func(h *plan.HMAC) { h.Content = "}{body}" }), "hmac.content: only"},
		{"content with an open brace", described(func(h *plan.HMAC) { h.Content = "{body}{id" }), "hmac.content: only"},
		{"prefix with body", described(func(h *plan.HMAC) { h.Prefix = "{body}" }), "hmac.prefix: only"},
		{"prefix with another field", described(func(h *plan.HMAC) { h.Prefix = "{ts}" }), "hmac.prefix: only"},
		{"encoding", described(func(h *plan.HMAC) { h.Encoding = "Base32" }), `"Base32" is not known here`},
		{"algorithm", described(func(h *plan.HMAC) { h.Algorithm = "MD5" }), `"MD5" is not known here`},
		{"unit", described(func(h *plan.HMAC) { h.TimestampUnit = "Minutes" }), `"Minutes" is not known here`},
	} {
		_, err := NewSigner(row.signing)
		if err == nil || !strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), bad[6:]) {
			t.Errorf("%s: %v, want %q", row.name, err, row.want)
		}
	}
}

// Which keys sign when. cases ROT-01, ROT-02, CLK-06 (wall and steady time apart)
func TestKeysSignInTheirTime(t *testing.T) {
	base := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	after := func(minutes int) time.Time { return base.Add(time.Duration(minutes) * time.Minute) }
	key := func(name string, notBefore, expiresAt, formerUntil time.Time) plan.SigningKey {
		return plan.SigningKey{Name: name, Key: name, NotBefore: notBefore, ExpiresAt: expiresAt, FormerUntil: formerUntil}
	}
	var none time.Time
	for _, row := range []struct {
		name string
		keys []plan.SigningKey
		// at and steady are minutes after base.
		at, steady int
		all        string // names of the keys that sign with Stripe; empty: ErrNoKey
		one        string // with HMAC
	}{
		{"no bounds", []plan.SigningKey{key("a", none, none, none), key("b", none, none, none)}, 0, 0, "a b", "a"},
		{"not begun", []plan.SigningKey{key("a", after(5), none, none)}, 4, 9, "", ""},
		{"beginning", []plan.SigningKey{key("a", after(5), none, none)}, 5, 0, "a", "a"},
		{"about to expire", []plan.SigningKey{key("a", none, after(5), none)}, 4, 9, "a", "a"},
		{"expiring", []plan.SigningKey{key("a", none, after(5), none)}, 5, 0, "", ""},
		{"one after the other", []plan.SigningKey{key("a", none, after(5), none), key("b", after(5), none, none)}, 5, 5, "b", "b"},
		{"side by side", []plan.SigningKey{key("a", none, after(9), none), key("b", after(5), none, none)}, 6, 6, "a b", "b"},
		{"the newest has not begun", []plan.SigningKey{key("a", after(1), none, none), key("b", after(2), none, none), key("c", after(9), none, none)}, 6, 6, "a b", "b"},
		{"the newest has expired", []plan.SigningKey{key("a", after(1), none, none), key("b", after(2), after(4), none)}, 6, 6, "a", "a"},
		{"equals: the first", []plan.SigningKey{key("a", after(1), none, none), key("b", after(1), none, none)}, 6, 6, "a b", "a"},
		{"a former value", []plan.SigningKey{key("a", none, none, none), key("f", none, none, after(5))}, 60, 4, "a f", "a"},
		{"a former value ends by steady time", []plan.SigningKey{key("a", none, none, none), key("f", none, none, after(5))}, 0, 5, "a", "a"},
		{"a former value is never the newest", []plan.SigningKey{key("a", none, none, none), key("f", after(1), none, after(9))}, 6, 6, "a f", "a"},
		{"a former value expires with its key", []plan.SigningKey{key("a", none, none, none), key("f", none, after(3), after(9))}, 4, 4, "a", "a"},
		{"a former value alone", []plan.SigningKey{key("a", after(9), none, none), key("f", none, none, after(5))}, 4, 4, "f", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			m := &Message{ID: "evt_1", At: after(row.at), Steady: after(row.steady), Body: []byte("b")}
			stripe, single := plan.Signing{Scheme: plan.SchemeStripe, Keys: row.keys}, hmacOf(nil)
			single.Keys = row.keys
			wantStripe, wantSingle := "", ""
			for _, k := range strings.Fields(row.all) {
				wantStripe += ",v1=" + macOf(k, strconv.FormatInt(m.At.Unix(), 10)+".b")
			}
			if wantStripe != "" {
				wantStripe = "t=" + strconv.FormatInt(m.At.Unix(), 10) + wantStripe
			}
			if row.one != "" {
				wantSingle = macOf(row.one, "b")
			}
			signs(t, stripe, m, wantStripe)
			signs(t, single, m, wantSingle)
		})
	}
}

// signs checks the value of the last header, or that there is none where want is empty.
func signs(t *testing.T, s plan.Signing, m *Message, want string) {
	t.Helper()
	signer := mustSigner(t, s)
	got, err := signer.AppendHeaders(nil, m)
	if can := signer.CanSign(m.At, m.Steady); can != (want != "") {
		t.Errorf("%s: CanSign = %v", s.Scheme, can)
	}
	if want == "" {
		if err != ErrNoKey || len(got) != 0 {
			t.Errorf("%s: %v, %v; want ErrNoKey and nothing", s.Scheme, got, err)
		}
		return
	}
	if err != nil || got[len(got)-1].Value != want {
		t.Errorf("%s: %v, %v; want %s", s.Scheme, got, err, want)
	}
}
