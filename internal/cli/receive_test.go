package cli

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/sign"
)

// newReceiver is a receiver with one key, and what it prints.
func newReceiver(t *testing.T) (*receiver, *lockedBuffer, []sign.Key) {
	t.Helper()
	key, err := sign.ParseKey(sign.NewKey())
	if err != nil {
		t.Fatal(err)
	}
	out := &lockedBuffer{}
	keys := []sign.Key{key}
	return &receiver{
		keys: func() ([]sign.Key, error) { return keys, nil }, verify: verifiers["StandardWebhooks"], now: func() time.Time { return start }, out: out,
		seen: map[string]bool{}, random: rand.New(rand.NewPCG(1, 0)), failStatus: http.StatusServiceUnavailable,
	}, out, keys
}

// deliver makes a delivery as Doorstep would, and gives the answer's status code. change may spoil it.
func deliver(t *testing.T, h http.Handler, keys []sign.Key, id, body string, change func(*http.Request)) int {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/hook", strings.NewReader(body))
	signDelivery(t, r, keys, id, body)
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

func signDelivery(t *testing.T, r *http.Request, keys []sign.Key, id, body string) {
	t.Helper()
	signature, err := sign.Sign(nil, keys, id, start.Unix(), []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Webhook-Id", id)
	r.Header.Set("Webhook-Timestamp", strconv.FormatInt(start.Unix(), 10))
	r.Header.Set("Webhook-Signature", string(signature))
	r.Header.Set("Doorstep-Attempt", "1")
}

func TestReceiverVerifies(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*http.Request)
		want   int
	}{
		{"as sent", nil, 204},
		{"no signature", func(r *http.Request) { r.Header.Del("Webhook-Signature") }, 401},
		{"another body", func(r *http.Request) { r.Body = http.NoBody }, 401},
		{"another id", func(r *http.Request) { r.Header.Set("Webhook-Id", "evt_2") }, 401},
		{"an old timestamp", func(r *http.Request) { r.Header.Set("Webhook-Timestamp", "1") }, 401},
		{"not a POST", func(r *http.Request) { r.Method = http.MethodGet }, 405},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, out, keys := newReceiver(t)
			if got := deliver(t, r, keys, "evt_1", `{"type":"a.b"}`, c.change); got != c.want {
				t.Errorf("answer is %d, want %d", got, c.want)
			}
			if got := strings.Contains(out.String(), "verified  evt_1  a.b  attempt 1  14 bytes"); got != (c.want == 204) {
				t.Errorf("printed %q", out)
			}
		})
	}
}

// What a Signer of another scheme sends, the receiver takes with --scheme, and with no other.
func TestReceiverVerifiesByItsScheme(t *testing.T) {
	const secret = "It's a Secret to Everybody"
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	if err := os.WriteFile(path, []byte("another\n"+secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, scheme := range []string{plan.SchemeGitHub, plan.SchemeStripe} {
		signer, err := sign.NewSigner(plan.Signing{Scheme: scheme, Keys: []plan.SigningKey{{Name: "k", Key: secret}}})
		if err != nil {
			t.Fatal(err)
		}
		headers, err := signer.AppendHeaders(nil, &sign.Message{ID: "evt_1", Type: "a.b", At: start, Steady: start, Body: []byte("{}")})
		if err != nil {
			t.Fatal(err)
		}
		for _, by := range []string{plan.SchemeGitHub, plan.SchemeStripe} {
			keys, err := (&receiveOptions{scheme: by}).readKeys(path)
			if err != nil {
				t.Fatal(err)
			}
			r, _, _ := newReceiver(t)
			r.keys, r.verify = func() ([]sign.Key, error) { return keys, nil }, verifiers[by]
			q := httptest.NewRequest(http.MethodPost, "/hook", strings.NewReader("{}"))
			for _, h := range headers {
				q.Header.Set(h.Name, h.Value)
			}
			w := httptest.NewRecorder()
			r.ServeHTTP(w, q)
			if want := map[bool]int{true: 204, false: 401}[by == scheme]; w.Code != want {
				t.Errorf("signed by %s, verified by %s: %d, want %d", scheme, by, w.Code, want)
			}
		}
	}
	out := &lockedBuffer{}
	if code := Run(t.Context(), "doorstep", []string{"receive", "--scheme", "HMAC"}, Streams{Out: out, Err: out, Now: time.Now, Getenv: os.Getenv}); code != 1 ||
		!strings.Contains(out.String(), "--scheme HMAC: it is one of StandardWebhooks, GitHub and Stripe") {
		t.Errorf("exit code %d, printed %q", code, out)
	}
}

// A failed event is not done: only what was answered 2xx is a duplicate (case DD80). One that comes again after it was
// done, because its sender had timed out, does nothing a second time (case DD84).
func TestReceiverDedupes(t *testing.T) {
	r, out, keys := newReceiver(t)
	r.failFile = filepath.Join(t.TempDir(), "fail")
	if err := os.WriteFile(r.failFile, []byte("503\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := deliver(t, r, keys, "evt_1", "{}", nil); got != 503 {
		t.Errorf("answer while the file exists is %d, want 503", got)
	}
	if err := os.Remove(r.failFile); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{204, 200, 200} {
		if got := deliver(t, r, keys, "evt_1", "{}", nil); got != want {
			t.Errorf("answer is %d, want %d", got, want)
		}
	}
	if err := os.WriteFile(r.failFile, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := deliver(t, r, keys, "evt_1", "{}", nil); got != 200 {
		t.Errorf("a duplicate while failing is answered %d, want 200", got)
	}
	if got := deliver(t, r, keys, "evt_2", "{}", nil); got != 500 {
		t.Errorf("answer to a fail file that says nothing is %d, want 500", got)
	}
	if got := strings.Count(out.String(), "verified"); got != 1 {
		t.Errorf("%d lines say verified, want 1:\n%s", got, out)
	}
}

// An id comes from outside, and not every scheme signs it.
func TestReceiverShowsNoControlCharacters(t *testing.T) {
	r, out, keys := newReceiver(t)
	for range 2 {
		deliver(t, r, keys, "evt\u009b2J", "{}", nil)
	}
	if strings.Contains(out.String(), "\u009b") || strings.Count(out.String(), `evt\u009b2J`) != 2 {
		t.Errorf("it prints %q", out)
	}
}

func TestReceiverFailsAtItsRate(t *testing.T) {
	r, _, keys := newReceiver(t)
	r.failRate = 0.3
	failed := 0
	for i := range 1000 {
		if deliver(t, r, keys, fmt.Sprint("evt_", i), "{}", nil) == 503 {
			failed++
		}
	}
	if failed < 250 || failed > 350 {
		t.Errorf("%d of 1000 failed, want about 300", failed)
	}
}

func TestReceiverLogOutlivesIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	r, _, keys := newReceiver(t)
	if err := r.openLog(path); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		deliver(t, r, keys, fmt.Sprint("evt_", i), "{}", nil)
	}
	if err := r.log.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil || strings.Count(string(b), "\n") != 3 {
		t.Fatalf("log is %q, %v", b, err)
	}
	// A crash cut the last line off: its event was never answered, and comes again.
	if err := os.WriteFile(path, b[:len(b)-5], 0o600); err != nil {
		t.Fatal(err)
	}
	again, _, _ := newReceiver(t)
	again.keys = r.keys
	if err := again.openLog(path); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = again.log.Close() }()
	for i, want := range []int{200, 200, 204, 204} {
		if got := deliver(t, again, keys, fmt.Sprint("evt_", i), "{}", nil); got != want {
			t.Errorf("evt_%d is answered %d, want %d", i, got, want)
		}
	}
	b, err = os.ReadFile(path)
	if lines := strings.Split(strings.TrimSpace(string(b)), "\n"); err != nil || len(lines) != 4 || !strings.Contains(lines[3], `"evt_3"`) {
		t.Errorf("log is %q, %v", b, err)
	}
}

// secretManifest is how standalone keeps a generated key.
const secretManifest = "apiVersion: v1\nkind: Secret\nmetadata: {name: orders-signing, namespace: shop}\nstringData:\n  key: %s\n"

func TestReceiverFindsItsKey(t *testing.T) {
	dir, text := t.TempDir(), sign.NewKey()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key, err := sign.ParseKey(text)
	if err != nil {
		t.Fatal(err)
	}
	generated := &receiveOptions{endpoints: []string{"shop/audit", "shop/orders"}, scheme: plan.SchemeStandardWebhooks}
	generated.Getenv = func(name string) string { return map[string]string{"DOORSTEP_DATA": dir}[name] }
	for _, c := range []struct {
		name string
		o    *receiveOptions
		env  string
		ok   bool
	}{
		{"a file", &receiveOptions{secretFile: file("key", text+"\n")}, "", true},
		{"a file of two", &receiveOptions{secretFile: file("two", sign.NewKey()+"\n"+text+"\n")}, "", true},
		{"a Secret's manifest", &receiveOptions{secretFile: file("secret.yaml", fmt.Sprintf(secretManifest, text))}, "", true},
		{"the environment", &receiveOptions{}, text, true},
		{"an empty file", &receiveOptions{secretFile: file("empty", "")}, "", false},
		{"a file that is no key", &receiveOptions{secretFile: file("bad", "whsec_!!!")}, "", false},
		{"no file", &receiveOptions{secretFile: filepath.Join(dir, "none")}, "", false},
		{"nothing", &receiveOptions{}, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.Getenv, c.o.scheme = func(string) string { return c.env }, plan.SchemeStandardWebhooks
			source, err := c.o.keys()
			if (err == nil) != c.ok {
				t.Fatalf("error is %v", err)
			}
			if err != nil && (strings.Contains(err.Error(), "!!!") || c.env != "" && strings.Contains(err.Error(), c.env)) {
				t.Errorf("the key is in the error: %v", err)
			}
			if c.ok {
				holdsKey(t, source, key)
			}
		})
	}
	// A generated key may come later than the receiver.
	source, err := generated.keys()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := source(); err == nil {
		t.Error("there is a key before it was made")
	}
	if len(generated.missing) != 2 || !strings.HasPrefix(generated.missing[1], dir) {
		t.Errorf("the files to wait for are %q", generated.missing)
	}
	file("secrets/shop/orders-signing.yaml", fmt.Sprintf(secretManifest, text))
	holdsKey(t, source, key)
}

func holdsKey(t *testing.T, source keySource, key sign.Key) {
	t.Helper()
	keys, err := source()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		if k.Fingerprint() == key.Fingerprint() {
			return
		}
	}
	t.Errorf("%d keys, none of them the right one", len(keys))
}

// The command listens, takes a delivery and ends well when it is interrupted.
func TestReceiveCommand(t *testing.T) {
	text := sign.NewKey()
	key, err := sign.ParseKey(text)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	out, errOut := &lockedBuffer{}, &watched{found: make(chan string, 1)}
	ended := make(chan int, 1)
	go func() {
		ended <- Run(ctx, "doorstep", []string{"receive", "--listen", "127.0.0.1:0"}, Streams{
			Out: out, Err: errOut, Now: func() time.Time { return start },
			Getenv: func(name string) string { return map[string]string{signingKeyVariable: text}[name] },
		})
	}()
	url := <-errOut.found
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/hook", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	signDelivery(t, r, []sign.Key{key}, "evt_1", "{}")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusNoContent || !strings.Contains(out.String(), "verified  evt_1") {
		t.Errorf("answer is %s, printed %q", res.Status, out)
	}
	cancel()
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d after an interrupt, want 0", code)
	}
}

// What the receiver waits for is said at its start, and what to do about an address that is taken.
func TestReceiveSaysWhatItWaitsFor(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	out, errOut := &lockedBuffer{}, &watched{found: make(chan string, 1)}
	streams := Streams{Out: out, Err: errOut, Now: time.Now, Getenv: func(string) string { return "" }}
	ended := make(chan int, 1)
	go func() {
		ended <- Run(ctx, "doorstep", []string{"receive", "--listen", "127.0.0.1:0", "--data", dir, "--endpoint", "shop/orders"}, streams)
	}()
	addr := strings.TrimPrefix(<-errOut.found, "http://")
	taken := &lockedBuffer{}
	code := Run(t.Context(), "doorstep", []string{"receive", "--listen", addr, "--data", dir, "--endpoint", "shop/orders"},
		Streams{Out: out, Err: taken, Now: time.Now, Getenv: streams.Getenv})
	want := "error: listen on " + addr + ": bind: address already in use; choose another address with --listen\n"
	if code != 1 || taken.String() != want {
		t.Errorf("exit code %d, stderr %q, want %q", code, taken, want)
	}
	cancel()
	<-ended
	if want := "waiting for the signing key in " + filepath.Join(dir, "secrets/shop/orders-signing.yaml"); !strings.Contains(errOut.String(), want) {
		t.Errorf("stderr is %q, want %q in it", errOut, want)
	}
}

// watched gives the first URL written to it.
type watched struct {
	lockedBuffer
	found chan string
}

var urlPattern = regexp.MustCompile(`http://[0-9.:]+`)

func (w *watched) Write(p []byte) (int, error) {
	n, err := w.lockedBuffer.Write(p)
	if url := urlPattern.FindString(w.String()); url != "" {
		select {
		case w.found <- url:
		default:
		}
	}
	return n, err
}
