package sign

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// cases SG38, SG42, SIG-11
func TestParseKey(t *testing.T) {
	b64 := func(n int) string {
		return base64.StdEncoding.EncodeToString([]byte(strings.Repeat("\xfb\xef\x7f", n)[:n]))
	}
	for _, row := range []struct {
		name, text string
		want       string // part of the error; empty: taken
		as         string // the same key as this one
		// decided is a case where we refuse what the reference library takes: sizes and
		// forms that the specification rules out.
		decided bool
	}{
		{name: "whsec_ and base64", text: secretA, as: secretA},
		{name: "without the prefix", text: strings.TrimPrefix(secretA, "whsec_"), as: secretA},
		{name: "24 bytes", text: "whsec_" + b64(24)},
		{name: "32 bytes", text: "whsec_" + b64(32)},
		{name: "64 bytes", text: "whsec_" + b64(64)},
		{name: "whsk_", text: secretC, as: publicC},
		{name: "8 bytes", text: "whsec_" + b64(8), want: "has 8 bytes", decided: true},
		{name: "23 bytes", text: "whsec_" + b64(23), want: "has 23 bytes", decided: true},
		{name: "65 bytes", text: "whsec_" + b64(65), want: "has 65 bytes", decided: true},
		{name: "23 bytes, unpadded", text: "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS", want: "without its padding"},
		{name: "32 bytes, unpadded", text: "whsec_" + strings.TrimRight(b64(32), "="), want: "without its padding"},
		{name: "URL-safe alphabet", text: "whsec_" + strings.NewReplacer("+", "-", "/", "_").Replace(b64(32)), want: "not standard base64"},
		{name: "not base64", text: "whsec_****************************************", want: "not base64"},
		{name: "empty", text: "", want: "empty", decided: true},
		{name: "prefix alone", text: "whsec_", want: "nothing after it", decided: true},
		{name: "whsk_ alone", text: "whsk_", want: "nothing after it"},
		{name: "trailing newline", text: secretA + "\n", want: "trailing newline", decided: true},
		{name: "trailing CR LF", text: secretA + "\r\n", want: "trailing newline", decided: true},
		{name: "trailing CR", text: secretA + "\r", want: "trailing newline", decided: true},
		{name: "leading space", text: " " + secretA, want: "white space around"},
		{name: "leading newline", text: "\n" + secretA, want: "white space around"},
		{name: "trailing tab", text: secretA + "\t", want: "white space around"},
		{name: "newline within", text: secretA[:12] + "\n" + secretA[12:], want: "white space in it", decided: true},
		{name: "whsk_ of a seed alone", text: "whsk_" + b64(32), want: "has 32 bytes"},
		{name: "whsk_ of halves that don't match", text: "whsk_" + b64(64), want: "does not belong"},
		{name: "public key", text: publicC, want: "can't sign"},
		{name: "other prefix", text: "whxx_" + b64(32), want: "not standard base64"},
	} {
		t.Run(row.name, func(t *testing.T) {
			key, err := ParseKey(row.text)
			if row.want == "" {
				if err != nil {
					t.Fatalf("refused: %v", err)
				}
				if row.as != "" && key.Fingerprint() != mustKey(t, row.as).Fingerprint() {
					t.Errorf("reads as another key than expected")
				}
			} else {
				if err == nil || !strings.Contains(err.Error(), row.want) {
					t.Fatalf("err = %v, want one that says %q", err, row.want)
				}
				for i := 0; i+6 <= len(row.text); i++ {
					part := row.text[i : i+6]
					if !strings.Contains("whsec_ whsk_ whpk_", part) && strings.Contains(err.Error(), part) {
						t.Fatalf("the error %q holds %q of the key", err, part)
					}
				}
			}
			// The reference library is the measure, but for the rows marked as decided.
			if strings.HasPrefix(row.text, "whsk_") || strings.HasPrefix(row.text, "whpk_") || row.decided {
				return
			}
			_, refErr := standardwebhooks.NewWebhook(row.text)
			if (refErr == nil) != (err == nil) {
				t.Errorf("we say %v, the reference library %v", err, refErr)
			}
		})
	}
}

func TestNewKeyIsFreshAndUsable(t *testing.T) {
	a, b := NewKey(), NewKey()
	if a == b {
		t.Error("two new keys are the same")
	}
	if _, err := ParseKey(a); err != nil {
		t.Error(err)
	}
	if raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(a, "whsec_")); err != nil || len(raw) != 32 {
		t.Errorf("a new key has %d bytes (%v), want 32", len(raw), err)
	}
}

// case SG40, for values that are printed
func TestKeyPrintsItsFingerprintOnly(t *testing.T) {
	key := mustKey(t, secretA)
	raw, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secretA, "whsec_"))
	var out strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&out, verb+" "+verb+" "+verb+"\n", key, []Key{key}, struct{ K Key }{key})
	}
	fmt.Fprintf(&out, "%+v %#v\n", struct{ k Key }{key}, &struct{ k *Key }{&key})
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "key", key)
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "keys", []Key{key})
	if err := json.NewEncoder(&out).Encode(map[string]any{"key": key}); err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{secretA[6:20], string(raw[:8]), fmt.Sprintf("%x", raw[:8]), fmt.Sprint(raw[:8])[1:20]} {
		if strings.Contains(out.String(), secret) {
			t.Errorf("the key shows in %q", out.String())
		}
	}
	if !strings.Contains(out.String(), key.Fingerprint()) {
		t.Error("the fingerprint doesn't show")
	}
}

func TestFingerprintsDiffer(t *testing.T) {
	seen := map[string]string{}
	for _, text := range []string{secretA, secretB, secretC} {
		f := mustKey(t, text).Fingerprint()
		if len(f) != 12 || seen[f] != "" {
			t.Errorf("fingerprint %q", f)
		}
		seen[f] = text
	}
	if (Key{}).Fingerprint() != "none" {
		t.Error("the zero key has a fingerprint")
	}
}
