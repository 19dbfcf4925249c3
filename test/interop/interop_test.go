package interop

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/test/harness"
)

var signingKey = harness.Key("interop tests sign with these 32b")

var (
	// packages are the npm packages that the receiver uses.
	packages = []string{"standardwebhooks", "svix", "stripe", "@octokit/webhooks-methods"}
	modes    = []string{"first", "retry", "dead"}
)

// request is a line of the receiver: what one request was.
type request struct {
	Port           int
	Verifier, Mode string
	ID             string
	Attempt        int
	Replay         string
	ContentType    string
	CeType, CeID   string
	SHA256         string
	Verified       bool
	Error          string
	// ChangedError is why the same request with one byte more was refused.
	ChangedError string
	Status       int
}

// node is the running receiver. It keeps the lines that it wrote.
type node struct {
	*harness.Process
	mu   sync.Mutex
	text bytes.Buffer
}

// Write takes what the receiver writes.
func (n *node) Write(b []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.Write(b)
}

// requests are the whole lines so far.
func (n *node) requests() ([]request, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []request
	for line := range strings.Lines(n.text.String()) {
		if !strings.HasSuffix(line, "\n") {
			break
		}
		var r request
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return nil, fmt.Errorf("the receiver wrote %q: %w", line, err)
		}
		out = append(out, r)
	}
	return out, nil
}

// startNode starts the receiver and returns its base URL.
func startNode(t *testing.T) (*node, string) {
	t.Helper()
	path, err := exec.LookPath("node")
	if err != nil {
		t.Fatal("node is needed for this test, 18 or later; install it, then run `make interop-deps`")
	}
	for _, name := range packages {
		if _, err := os.Stat(filepath.Join("node_modules", name)); err != nil {
			t.Fatalf("the npm package %s is not installed; run `make interop-deps`", name)
		}
	}
	// Read for go test's cache: a changed receiver is tested anew.
	for _, source := range []string{"receiver.mjs", "verifiers.mjs"} {
		if _, err := os.ReadFile(source); err != nil {
			t.Fatal(err)
		}
	}
	keys, err := json.Marshal(receiverKeys())
	if err != nil {
		t.Fatal(err)
	}
	n := &node{}
	n.Process, err = harness.Start(harness.Command{Name: "node", Path: path, Args: []string{"receiver.mjs"}, Env: []string{"SIGNING_KEYS=" + string(keys)}, Stdout: n})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Kill)
	var port int
	await(t, "node to listen", func() (bool, error) {
		if !n.Running() {
			return false, fmt.Errorf("node ended: %s", n.Tail())
		}
		lines, err := n.requests()
		if err != nil || len(lines) == 0 {
			return false, err
		}
		port = lines[0].Port
		return true, nil
	})
	return n, "http://127.0.0.1:" + strconv.Itoa(port)
}

func await(t *testing.T, what string, check func() (bool, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := harness.Await(ctx, 20*time.Millisecond, what, check); err != nil {
		t.Fatal(err)
	}
}

// posted is an event that the worker accepted.
type posted struct {
	message
	mode, id, typ, body string
	webhookID           string
}

// Every delivery is verified by the library or second implementation of its scheme and has
// the bytes that were posted: on the first try, on a retry, and after a replay.
func TestReceiversVerifyDeliveries(t *testing.T) {
	n, base := startNode(t)
	checkReceiverRefuses(t, n, base)

	binary, err := harness.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := startWorker(t, binary, base)
	var all []posted
	for _, mode := range modes {
		for _, m := range messages {
			p := post(t, w, m, mode)
			if mode == "retry" {
				// One after another: five failures in a row would, rightly, make the lane back off.
				p.awaitState(t, w, "delivered")
			}
			all = append(all, p)
		}
	}
	for _, p := range all {
		p.awaitState(t, w, map[string]string{"first": "delivered", "retry": "delivered", "dead": "deadLettered"}[p.mode])
	}
	for _, p := range all {
		if p.mode == "dead" {
			if _, err := w.Call("POST", harness.Path("events/"+p.webhookID+"/replay"), nil, []byte("{}"), nil); err != nil {
				t.Fatalf("%s: %v", p.name, err)
			}
		}
	}
	for _, p := range all {
		p.awaitState(t, w, "delivered")
	}
	if err := w.Stop(30 * time.Second); err != nil {
		t.Error(err)
	}
	lines, err := n.requests()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		for _, v := range verifiers {
			t.Run(p.mode+"/"+p.name+"/"+v.name, func(t *testing.T) { p.check(t, v, lines) })
		}
	}
}

// checkReceiverRefuses shows that the receiver can tell wrong from right, so that what
// follows can fail.
func checkReceiverRefuses(t *testing.T, n *node, base string) {
	t.Helper()
	ts := strconv.FormatInt(time.Now().Unix(), 10)
	for _, library := range []string{"standardwebhooks", "svix", "bytes"} {
		req, err := http.NewRequest(http.MethodPost, base+"/"+library+"/first", strings.NewReader(`{"a":2}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("webhook-id", "tampered")
		req.Header.Set("webhook-timestamp", ts)
		req.Header.Set("webhook-signature", signingKey.Sign("tampered", ts, []byte(`{"a":1}`)))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized {
			t.Fatalf("%s: a body that was changed on its way is answered %d, want 401; the receiver says %s", library, resp.StatusCode, n.Tail())
		}
	}
}

// startWorker starts a worker with an endpoint for each verifier and mode.
func startWorker(t *testing.T, binary, base string) *harness.Worker {
	t.Helper()
	dir := t.TempDir()
	manifests := filepath.Join(dir, "manifests")
	var list []harness.Endpoint
	var secrets []string
	for _, v := range verifiers {
		signing, secret := v.signing()
		secrets = append(secrets, secret)
		for _, mode := range modes {
			list = append(list, harness.Endpoint{
				Name: v.name + "-" + mode, URL: base + "/" + v.name + "/" + mode,
				EventTypes: []string{mode + ".*"}, RetryPolicy: "quick", Signing: signing,
			})
		}
	}
	if err := harness.WriteManifest(manifests, "secrets.yaml", secrets...); err != nil {
		t.Fatal(err)
	}
	if err := harness.WriteManifests(manifests, signingKey, list...); err != nil {
		t.Fatal(err)
	}
	if err := harness.WriteManifest(manifests, "quick.yaml", harness.RetryManifest("quick", "100ms", "500ms", "1s", "1s", "1s")); err != nil {
		t.Fatal(err)
	}
	w, err := harness.StartWorker(t.Context(), harness.WorkerConfig{Binary: binary, Manifests: manifests, Data: filepath.Join(dir, "data")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Kill)
	return w
}

func post(t *testing.T, w *harness.Worker, m message, mode string) posted {
	t.Helper()
	p := posted{message: m, mode: mode, id: mode + "-" + m.name, typ: mode + "." + m.name}
	p.body = m.body(p.id, p.typ)
	var receipt struct {
		WebhookID string
		Endpoints int
	}
	if _, err := w.Call("POST", harness.EventsPath, m.header(p.id, p.typ), []byte(p.body), &receipt); err != nil {
		t.Fatalf("%s: %v", p.id, err)
	}
	if receipt.Endpoints != len(verifiers) {
		t.Fatalf("%s goes to %d endpoints, want %d", p.id, receipt.Endpoints, len(verifiers))
	}
	p.webhookID = receipt.WebhookID
	return p
}

// awaitState waits until all of the event's deliveries are in a state.
func (p posted) awaitState(t *testing.T, w *harness.Worker, state string) {
	t.Helper()
	var e struct {
		States     map[string]int
		Deliveries []any
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := harness.Await(ctx, 20*time.Millisecond, p.id+" to be "+state, func() (bool, error) {
		e.States, e.Deliveries = nil, nil
		_, err := w.Call("GET", harness.Path("events/"+p.webhookID), nil, nil, &e)
		return e.States[state] == len(verifiers), err
	})
	if err != nil {
		var lanes any
		_, _ = w.Call("GET", harness.Path("endpoints"), nil, nil, &lanes)
		t.Fatalf("%v: %+v\nendpoints: %+v", err, e.Deliveries, lanes)
	}
}

// check holds what a verifier got of this event against what was posted.
func (p posted) check(t *testing.T, v verifier, lines []request) {
	t.Helper()
	var got []request
	for _, r := range lines {
		if r.Verifier == v.name && r.Mode == p.mode && r.ID == p.webhookID {
			got = append(got, r)
		}
	}
	want := map[string]int{"first": 1, "retry": 2, "dead": 2}[p.mode]
	if len(got) != want {
		t.Fatalf("%d requests came, want %d: %+v", len(got), want, got)
	}
	sum := sha256.Sum256([]byte(p.body))
	for i, r := range got {
		if r.SHA256 != hex.EncodeToString(sum[:]) {
			t.Errorf("request %d has other bytes than were posted", i+1)
		}
		if r.Attempt != i+1 {
			t.Errorf("request %d says it is attempt %d", i+1, r.Attempt)
		}
		if can := v.canVerify(p.body); r.Verified != can {
			t.Errorf("request %d: verified %v (%s), want %v", i+1, r.Verified, r.Error, can)
		}
		if r.ChangedError == "" {
			t.Errorf("request %d is verified with another body too", i+1)
		}
		if p.contentType != "" && r.ContentType != p.contentType {
			t.Errorf("request %d has the content type %q, want %q", i+1, r.ContentType, p.contentType)
		}
		if p.ce != nil && (r.CeType != p.typ || r.CeID != p.id) {
			t.Errorf("request %d has ce-type %q and ce-id %q, want %q and %q", i+1, r.CeType, r.CeID, p.typ, p.id)
		}
	}
	if last := got[len(got)-1]; (p.mode == "dead") != (last.Replay != "") {
		t.Errorf("the last request has doorstep-replay %q", last.Replay)
	}
}
