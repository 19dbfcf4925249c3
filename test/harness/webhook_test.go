package harness

import (
	"net/http"
	"testing"
	"time"
)

func TestVerify(t *testing.T) {
	// The example of the Standard Webhooks libraries' own tests.
	key, err := ParseKey("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	const id, ts, body = "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", `{"test": 2432232314}`
	const sig = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	if got := key.Sign(id, ts, []byte(body)); got != sig {
		t.Fatalf("signature is %s, want %s", got, sig)
	}
	now := time.Unix(1614265330, 0)
	for _, c := range []struct {
		name, id, sig, body string
		now                 time.Time
		ok                  bool
	}{
		{"right", id, sig, body, now, true},
		{"second of two", id, "v1,AAAA " + sig, body, now, true},
		{"other id", "msg_x", sig, body, now, false},
		{"other body", id, sig, body + " ", now, false},
		{"six minutes late", id, sig, body, now.Add(6 * time.Minute), false},
		{"cut short", id, sig[:10], body, now, false},
		{"no version", id, sig[3:], body, now, false},
		{"none", id, "", body, now, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := http.Header{}
			h.Set("webhook-id", c.id)
			h.Set("webhook-timestamp", ts)
			h.Set("webhook-signature", c.sig)
			if err := key.Verify(h, []byte(c.body), c.now); (err == nil) != c.ok {
				t.Errorf("verify says %v, want ok %v", err, c.ok)
			}
		})
	}
}
