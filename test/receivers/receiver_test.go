package receivers

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net"
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

var signingKey = harness.Key("receiver tests sign with these..")

// binary is the doorstep that these tests run, goReceiver the receiver in Go.
var binary, goReceiver string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "doorstep-receivers")
		if err != nil {
			panic(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		if binary, err = harness.Build(context.Background(), dir); err != nil {
			panic(err)
		}
		goReceiver = filepath.Join(dir, "receiver")
		if out, err := exec.CommandContext(context.Background(), "go", "build", "-o", goReceiver, samples+"go/main.go").CombinedOutput(); err != nil {
			panic(fmt.Sprintf("building the receiver: %v\n%s", err, out))
		}
		return m.Run()
	}())
}

// samples is where the receivers are.
const samples = "../../docs/receivers/"

// language is one of the receivers.
type language struct {
	name, source string
	// command makes the command that runs it.
	command func(t *testing.T) []string
}

var languages = []language{
	{"go", samples + "go/main.go", func(*testing.T) []string { return []string{goReceiver} }},
	{"node", samples + "node/receiver.mjs", func(t *testing.T) []string { return []string{find(t, "node"), samples + "node/receiver.mjs"} }},
	{"python", samples + "python/receiver.py", func(t *testing.T) []string { return []string{find(t, "python3"), samples + "python/receiver.py"} }},
}

func find(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%s is needed for this test; install it, or run `make interop-deps`", name)
	}
	return path
}

// forEach runs a test with each receiver.
func forEach(t *testing.T, test func(t *testing.T, r *receiver)) {
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) { test(t, newReceiver(t, l)) })
	}
}

// receiver is a sample receiver that runs, and runs again after it was killed.
type receiver struct {
	*harness.Process
	t           *testing.T
	addr, inbox string
	command     []string

	mu     sync.Mutex
	output bytes.Buffer
}

func newReceiver(t *testing.T, l language) *receiver {
	t.Helper()
	// Read for go test's cache: a changed receiver is tested anew.
	if _, err := os.ReadFile(l.source); err != nil {
		t.Fatal(err)
	}
	addr, err := harness.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{t: t, addr: addr, inbox: filepath.Join(t.TempDir(), "inbox"), command: l.command(t)}
	if err := os.Mkdir(r.inbox, 0o700); err != nil {
		t.Fatal(err)
	}
	r.start()
	t.Cleanup(func() { r.Kill() })
	return r
}

// start runs the receiver, on the same address and inbox each time.
func (r *receiver) start() {
	r.t.Helper()
	r.mu.Lock()
	r.output.Truncate(bytes.LastIndexByte(r.output.Bytes(), '\n') + 1) // a kill may have cut off a line
	r.mu.Unlock()
	var err error
	r.Process, err = harness.Start(harness.Command{
		Name: "the receiver", Path: r.command[0], Args: r.command[1:], Stdout: r,
		Env: []string{"SIGNING_KEY=" + keyText(signingKey), "LISTEN=" + r.addr, "INBOX=" + r.inbox},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	await(r.t, "the receiver to listen", func() (bool, error) {
		if !r.Running() {
			return false, fmt.Errorf("it ended: %s", r.Tail())
		}
		c, err := net.Dial("tcp", r.addr)
		if err != nil {
			return false, nil // not yet
		}
		return true, c.Close()
	})
}

func keyText(k harness.Key) string { return "whsec_" + base64.StdEncoding.EncodeToString(k) }

// Write takes what the receiver writes.
func (r *receiver) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.output.Write(b)
}

// done counts, for each id, how often its work was done, and gives the length of the
// body that it was done with.
func (r *receiver) done() (times, length map[string]int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	times, length = map[string]int{}, map[string]int{}
	for line := range strings.Lines(r.output.String()) {
		if !strings.HasSuffix(line, "\n") {
			break // it is being written
		}
		text, isDone := strings.CutPrefix(line, "done ")
		id, size, ok := cutLast(strings.TrimSuffix(text, "\n"))
		n, err := strconv.Atoi(size)
		if !isDone || !ok || err != nil {
			r.t.Errorf("the receiver wrote %q", line)
			continue
		}
		times[id]++
		length[id] = n
	}
	return times, length
}

func cutLast(s string) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, ' ')
	if i < 0 {
		return "", "", false
	}
	return s[:i], s[i+1:], true
}

// awaitDone waits until an id's work was done.
func (r *receiver) awaitDone(id string) {
	r.t.Helper()
	await(r.t, "the work of "+id, func() (bool, error) {
		times, _ := r.done()
		return times[id] > 0, nil
	})
}

func await(t *testing.T, what string, check func() (bool, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := harness.Await(ctx, 10*time.Millisecond, what, check); err != nil {
		t.Fatal(err)
	}
}
