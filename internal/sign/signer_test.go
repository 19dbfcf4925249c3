package sign

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/plan"
)

// standard is a Standard Webhooks endpoint with these keys, named by their place.
func standard(keys ...string) plan.Signing {
	s := plan.Signing{Scheme: plan.SchemeStandardWebhooks}
	for i, k := range keys {
		s.Keys = append(s.Keys, plan.SigningKey{Name: fmt.Sprint("k", i), Key: k})
	}
	return s
}

// hmacOf is an HMAC with the defaults of an endpoint.
func hmacOf(change func(*plan.HMAC), keys ...string) plan.Signing {
	s := standard(keys...)
	s.Scheme = plan.SchemeHMAC
	s.HMAC = &plan.HMAC{
		Header: "X-Signature", Algorithm: "SHA256", Encoding: "Hex", KeyEncoding: "Text", Content: "{body}", TimestampUnit: "Seconds",
	}
	if change != nil {
		change(s.HMAC)
	}
	return s
}

func mustSigner(t testing.TB, s plan.Signing) *Signer {
	t.Helper()
	signer, err := NewSigner(s)
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

// lines are headers as text, one a line.
func lines(headers []Header) string {
	var b strings.Builder
	for _, h := range headers {
		fmt.Fprintf(&b, "%s: %s\n", h.Name, h.Value)
	}
	return b.String()
}

func messageA() *Message {
	at := time.Unix(tsA, 987_654_321)
	return &Message{ID: idA, Type: "order.created", At: at, Steady: at, Body: []byte(bodyA)}
}

// Each scheme's headers, and no others.
func TestHeadersOfEachScheme(t *testing.T) {
	const both = "Webhook-Id: " + idA + "\nWebhook-Timestamp: 1614265330\n"
	github, stripe := standard("It's a Secret to Everybody"), standard("whsec_one", "whsec_two")
	github.Scheme, stripe.Scheme = plan.SchemeGitHub, plan.SchemeStripe
	for _, row := range []struct {
		name    string
		signing plan.Signing
		want    string
	}{
		// case ROT-01
		{"StandardWebhooks", standard(secretB, secretA),
			both + "Webhook-Signature: v1,78nXHjpFP0tVJQW5D0SBwmVyyW87BV/rL6MgfM/Bw44= " + sigA + "\n"},
		{"GitHub", github, both + "X-Github-Event: order.created\nX-Github-Delivery: " + idA +
			"\nX-Hub-Signature-256: sha256=" + macOf("It's a Secret to Everybody", bodyA) + "\n"},
		{"Stripe", stripe, both + "Stripe-Signature: t=1614265330,v1=" + macOf("whsec_one", "1614265330."+bodyA) +
			",v1=" + macOf("whsec_two", "1614265330."+bodyA) + "\n"},
		{"HMAC", hmacOf(nil, "k"), both + "X-Signature: " + macOf("k", bodyA) + "\n"},
		{"HMAC with everything", hmacOf(func(h *plan.HMAC) {
			h.Header, h.Prefix, h.Content = "x-sig", "id={id};ts={timestamp};v1=", "<{id}|{timestamp}>{body}<{id}>"
			h.TimestampHeader, h.TimestampUnit = "x-time", "Milliseconds"
		}, "k"), both + "X-Time: 1614265330987\nX-Sig: id=" + idA + ";ts=1614265330987;v1=" +
			macOf("k", "<"+idA+"|1614265330987>"+bodyA+"<"+idA+">") + "\n"},
		{"HMAC with a date", hmacOf(func(h *plan.HMAC) {
			h.TimestampHeader, h.TimestampUnit, h.Content = "X-Time", "RFC3339", "{timestamp}{body}"
		}, "k"), both + "X-Time: 2021-02-25T15:02:10Z\nX-Signature: " + macOf("k", "2021-02-25T15:02:10Z"+bodyA) + "\n"},
		{"None", plan.Signing{Scheme: plan.SchemeNone}, both},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, err := mustSigner(t, row.signing).AppendHeaders([]Header{{"Keep", "this"}}, messageA())
			if err != nil || lines(got) != "Keep: this\n"+row.want {
				t.Errorf("headers (%v)\n%swant\n%s", err, lines(got), row.want)
			}
		})
	}
}

// case SIG-09, for every scheme: nothing of a message is sent that can't be told from another.
func TestSignerRefusesOtherIDs(t *testing.T) {
	for _, s := range []plan.Signing{standard(secretA), hmacOf(nil, "k"), {Scheme: plan.SchemeNone}} {
		for _, id := range []string{"", "a.1614265330"} {
			m := messageA()
			m.ID = id
			if got, err := mustSigner(t, s).AppendHeaders(nil, m); err != ErrID || len(got) != 0 {
				t.Errorf("%s, id %q: %v, %v; want ErrID and nothing", s.Scheme, id, got, err)
			}
		}
	}
}

func TestSignerAllocatesLittle(t *testing.T) {
	signer, body := mustSigner(t, standard(secretA)), bytes.Repeat([]byte("a"), 1024)
	dst := make([]Header, 0, 8)
	n := testing.AllocsPerRun(1000, func() {
		at := time.Unix(tsA, 0)
		if _, err := signer.AppendHeaders(dst, &Message{ID: idA, Type: "t", At: at, Steady: at, Body: body}); err != nil {
			t.Error(err)
		}
	})
	// The two values, and what a sync.Pool drops under the race detector.
	if n > 5 {
		t.Errorf("AppendHeaders allocates %v times, want 2", n)
	}
}

func BenchmarkSigner1KiB(b *testing.B) {
	signer, body := mustSigner(b, standard(secretA)), bytes.Repeat([]byte("a"), 1024)
	dst, at := make([]Header, 0, 8), time.Unix(tsA, 0)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := signer.AppendHeaders(dst, &Message{ID: idA, Type: "t", At: at, Steady: at, Body: body}); err != nil {
			b.Fatal(err)
		}
	}
}

// macOf is a second implementation: the hex of an HMAC-SHA256.
func macOf(key, content string) string {
	m := hmac.New(sha256.New, []byte(key))
	m.Write([]byte(content))
	return hex.EncodeToString(m.Sum(nil))
}

// case CLK-07: two attempts of one message have one id, each its own time and signature.
func TestAttemptsAreSignedAnew(t *testing.T) {
	signer, m := mustSigner(t, standard(secretA)), messageA()
	first, _ := signer.AppendHeaders(nil, m)
	m.At = m.At.Add(time.Minute)
	second, _ := signer.AppendHeaders(nil, m)
	if first[0] != second[0] || first[1] == second[1] || first[2] == second[2] {
		t.Errorf("first\n%ssecond\n%s", lines(first), lines(second))
	}
	key := mustKey(t, secretA)
	if err := Verify([]Key{key}, idA, second[1].Value, second[2].Value, m.Body, m.At, DefaultTolerance); err != nil {
		t.Error(err)
	}
}
