package sign

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/plan"
)

func keysFor(t *testing.T, scheme string, texts ...string) []Key {
	t.Helper()
	var keys []Key
	for _, text := range texts {
		k, err := ParseKeyFor(&plan.Signing{Scheme: scheme}, text)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, k)
	}
	return keys
}

// case SIG-14
func TestVerifyGitHub(t *testing.T) {
	const good = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
	keys := keysFor(t, plan.SchemeGitHub, "another", "It's a Secret to Everybody")
	for _, row := range []struct {
		name, header, body string
		want               error
	}{
		{"the vector", "sha256=" + good, "Hello, World!", nil},
		{"hex in upper case", "sha256=" + strings.ToUpper(good), "Hello, World!", nil},
		{"prefix in upper case", "SHA256=" + good, "Hello, World!", ErrNoGitHub},
		{"SHA-1", "sha1=" + good[:40], "Hello, World!", ErrNoGitHub},
		{"missing", "", "Hello, World!", ErrNoGitHub},
		{"another body", "sha256=" + good, "Hello, World", ErrSignature},
		{"one digit off", "sha256=" + good[:63] + "8", "Hello, World!", ErrSignature},
		{"a digit short", "sha256=" + good[:63], "Hello, World!", ErrSignature},
		{"nothing after the prefix", "sha256=", "Hello, World!", ErrSignature},
	} {
		if err := VerifyGitHub(keys, row.header, []byte(row.body)); err != row.want {
			t.Errorf("%s: %v, want %v", row.name, err, row.want)
		}
	}
	if err := VerifyGitHub(keysFor(t, plan.SchemeGitHub, "another"), "sha256="+good, []byte("Hello, World!")); err != ErrSignature {
		t.Errorf("another key: %v", err)
	}
	if err := VerifyGitHub(nil, "sha256="+good, []byte("Hello, World!")); err != ErrSignature {
		t.Errorf("no keys: %v", err)
	}
}

// cases SIG-12, SIG-13, CLK-01, CLK-02, CLK-03 for Stripe
func TestVerifyStripe(t *testing.T) {
	const body, good = `{"id":"evt_test","object":"event"}`, "fbd6bf5496b9d6310e422a2c072578f95f5eb492111ab57a5510e9cd79c1b304"
	keys := keysFor(t, plan.SchemeStripe, "whsec_test_secret")
	wrong := strings.Repeat("0", 64)
	for _, row := range []struct {
		name, header string
		now          int64
		want         error
	}{
		{"the vector", "t=1614265330,v1=" + good, tsA, nil},
		{"any v1 passes", "t=1614265330,v1=" + wrong + ",v1=" + good + ",v0=" + wrong, tsA, nil},
		{"v0 alone", "t=1614265330,v0=" + good, tsA, ErrNoStripe},
		{"no time", "v1=" + good, tsA, ErrNoStripe},
		{"missing", "", tsA, ErrNoStripe},
		{"very many", "t=1614265330" + strings.Repeat(",v1="+wrong, 32) + ",v1=" + good, tsA, ErrNoStripe},
		{"another time", "t=1614265331,v1=" + good, tsA, ErrSignature},
		{"another's", "t=1614265330,v1=" + wrong, tsA, ErrSignature},
		{"no hex", "t=1614265330,v1=zz", tsA, ErrSignature},
		{"no number", "t=hello,v1=" + good, tsA, ErrTimestamp},
		{"300 s old", "t=1614265330,v1=" + good, tsA + 300, nil},
		{"300 s ahead", "t=1614265330,v1=" + good, tsA - 300, nil},
		{"301 s old", "t=1614265330,v1=" + good, tsA + 301, &SkewError{-301}},
		{"301 s ahead", "t=1614265330,v1=" + good, tsA - 301, &SkewError{301}},
	} {
		err := VerifyStripe(keys, row.header, []byte(body), time.Unix(row.now, 0), DefaultTolerance)
		var got, want *SkewError
		if errors.As(row.want, &want) {
			if !errors.As(err, &got) || *got != *want {
				t.Errorf("%s: %v, want %v", row.name, err, row.want)
			}
		} else if err != row.want {
			t.Errorf("%s: %v, want %v", row.name, err, row.want)
		}
	}
	decoded := keysFor(t, plan.SchemeStripe, "test_secret")
	if err := VerifyStripe(decoded, "t=1614265330,v1="+good, []byte(body), time.Unix(tsA, 0), DefaultTolerance); err != ErrSignature {
		t.Errorf("the key without its whsec_: %v", err)
	}
}

// Whatever a Signer sends, it verifies.
func TestSignedForOthersVerifies(t *testing.T) {
	m := messageA()
	for _, scheme := range []string{plan.SchemeGitHub, plan.SchemeStripe} {
		s := standard("a secret", "another")
		s.Scheme = scheme
		got, err := mustSigner(t, s).AppendHeaders(nil, m)
		if err != nil {
			t.Fatal(err)
		}
		value, keys := got[len(got)-1].Value, keysFor(t, scheme, "a secret")
		if scheme == plan.SchemeGitHub {
			err = VerifyGitHub(keys, value, m.Body)
		} else {
			err = VerifyStripe(keys, value, m.Body, m.At, DefaultTolerance)
		}
		if err != nil {
			t.Errorf("%s: %v", scheme, err)
		}
	}
}
