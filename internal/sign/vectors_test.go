package sign

import (
	"encoding/hex"
	"encoding/json"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"pgregory.net/rapid"
)

const (
	secretA = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	secretB = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	secretC = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
	publicC = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="
	idA     = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	tsA     = 1614265330
	sigA    = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	bodyA   = `{"test": 2432232314}`
)

// vector is a row of testdata/signature-vectors.json.
type vector struct {
	Name, Scheme, Secret, Public, ID, Timestamp, Signature string
	Text                                                   string `json:"body_utf8"`
	Hex                                                    string `json:"body_hex"`
}

func (v *vector) body(t *testing.T) []byte {
	t.Helper()
	if v.Text != "" {
		return []byte(v.Text)
	}
	b, err := hex.DecodeString(v.Hex)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// vectors are the rows of Standard Webhooks.
func vectors(t *testing.T) []vector {
	t.Helper()
	b, err := os.ReadFile("testdata/signature-vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var all, ours []vector
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	for _, v := range all {
		if strings.HasPrefix(v.Scheme, "standard-webhooks") {
			ours = append(ours, v)
		}
	}
	if len(ours) != 9 {
		t.Fatalf("%d rows of Standard Webhooks, want 9", len(ours))
	}
	return ours
}

func mustKey(t testing.TB, text string) Key {
	t.Helper()
	k, err := ParseVerifyKey(text)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// cases SIG-01, SIG-02, SIG-03, SIG-07, SIG-08
func TestVectors(t *testing.T) {
	for _, v := range vectors(t) {
		t.Run(v.Name, func(t *testing.T) {
			key, body := mustKey(t, v.Secret), v.body(t)
			ts, err := strconv.ParseInt(v.Timestamp, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Sign(nil, []Key{key}, v.ID, ts, body)
			if err != nil || string(got) != v.Signature {
				t.Errorf("Sign = %q, %v, want %q", got, err, v.Signature)
			}
			verifier := key
			if v.Public != "" {
				if key.Public() != v.Public {
					t.Errorf("Public = %q, want %q", key.Public(), v.Public)
				}
				verifier = mustKey(t, v.Public)
			}
			now := time.Unix(ts, 0)
			if err := Verify([]Key{verifier}, v.ID, v.Timestamp, v.Signature, body, now, DefaultTolerance); err != nil {
				t.Errorf("Verify: %v", err)
			}
			if err := Verify([]Key{verifier}, v.ID, v.Timestamp, v.Signature, append(body, ' '), now, DefaultTolerance); err != ErrSignature {
				t.Errorf("Verify with a changed body = %v, want ErrSignature", err)
			}
		})
	}
}

// Whatever we sign, the reference library verifies, and the other way around.
func TestReferenceLibrary(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		text := NewKey()
		id := rapid.StringMatching(`[A-Za-z0-9_-]{1,64}`).Draw(rt, "id")
		body := rapid.SliceOf(rapid.Byte()).Draw(rt, "body")
		now := time.Now()
		key := mustKey(t, text)
		sig, err := Sign(nil, []Key{mustKey(t, secretB), key, mustKey(t, secretC)}, id, now.Unix(), body)
		if err != nil {
			rt.Fatal(err)
		}
		reference, err := standardwebhooks.NewWebhook(text)
		if err != nil {
			rt.Fatal(err)
		}
		h := http.Header{}
		h.Set("webhook-id", id)
		h.Set("webhook-timestamp", strconv.FormatInt(now.Unix(), 10))
		h.Set("webhook-signature", string(sig))
		if err := reference.Verify(body, h); err != nil {
			rt.Fatalf("the reference library refuses ours: %v", err)
		}
		theirs, err := reference.Sign(id, now, body)
		if err != nil {
			rt.Fatal(err)
		}
		if err := Verify([]Key{key}, id, strconv.FormatInt(now.Unix(), 10), theirs, body, now, DefaultTolerance); err != nil {
			rt.Fatalf("we refuse the reference library's: %v", err)
		}
	})
}
