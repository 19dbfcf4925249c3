package docs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/test/harness"
)

// Ports as the pages have them; each run takes free ones in their place.
const (
	apiPort      = "8080"
	receiverPort = "3000"
)

// runner runs the marked blocks of one page.
type runner struct {
	*testing.T
	page  page
	home  string
	ports map[string]string // by the page's port
	// exports are the export lines so far: what a person's shell would remember.
	exports string
	running map[string]*background // by the page's port
	// output of the last block that was run, and what of it is still to be matched.
	output []string
	// skipped: the last test block was not run, so its output isn't looked for.
	skipped bool
}

// background is a block that goes on running.
type background struct {
	cmd    *exec.Cmd
	log    string
	exited chan struct{}
}

func newRunner(t *testing.T, p page) *runner {
	r := &runner{T: t, page: p, home: t.TempDir(), ports: map[string]string{}, running: map[string]*background{}}
	for _, port := range []string{apiPort, receiverPort} {
		addr, err := harness.FreeAddr()
		if err != nil {
			t.Fatal(err)
		}
		if _, r.ports[port], err = net.SplitHostPort(addr); err != nil {
			t.Fatal(err)
		}
	}
	r.prepare()
	t.Cleanup(func() {
		for port := range r.running {
			r.stop(port)
		}
	})
	return r
}

// prepare lays out what a page may use beside the binary: the modules that the Go and
// the Node programs import, and the sample receivers.
func (r *runner) prepare() {
	bin := filepath.Join(r.home, "bin")
	r.must(os.Mkdir(bin, 0o700))
	r.must(os.Symlink(binary, filepath.Join(bin, "doorstep")))
	for _, name := range []string{"go.mod", "go.sum"} {
		b, err := os.ReadFile(filepath.Join(root, name))
		r.must(err)
		r.must(os.WriteFile(filepath.Join(r.home, name), b, 0o600))
	}
	modules, err := filepath.Abs(filepath.Join(root, "test", "interop", "node_modules"))
	r.must(err)
	r.must(os.Symlink(modules, filepath.Join(r.home, "node_modules")))
	client, err := filepath.Abs(filepath.Join(root, "client"))
	r.must(err)
	r.must(os.Symlink(client, filepath.Join(r.home, "client")))
	samples, err := filepath.Abs(filepath.Join(root, "docs", "receivers"))
	r.must(err)
	r.must(os.Mkdir(filepath.Join(r.home, "docs"), 0o700))
	r.must(os.Symlink(samples, filepath.Join(r.home, "docs", "receivers")))
}

func (r *runner) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *runner) run() {
	for _, b := range r.page.blocks {
		at := fmt.Sprintf("%s:%d", r.page.name, b.line)
		switch b.mark.verb {
		case "file":
			r.must(os.WriteFile(filepath.Join(r.home, b.mark.args[0]), []byte(r.toFree(b.text)), 0o600))
		case "output":
			if !r.skipped {
				r.match(at, b.text)
			}
		case "test":
			if r.skipped = b.mark.value("needs") == "node" && !r.hasNode(); r.skipped {
				r.Logf("%s: not run: node or its modules are missing (make interop-deps)", at)
			} else if b.mark.has("background") {
				r.start(at, b)
			} else {
				r.foreground(at, b)
			}
		}
		if r.Failed() {
			r.tellLogs()
			return
		}
	}
}

func (r *runner) hasNode() bool {
	_, err := exec.LookPath("node")
	_, missing := os.Stat(filepath.Join(r.home, "node_modules", "standardwebhooks"))
	return err == nil && missing == nil
}

// toFree puts the ports of this run in the place of the page's.
func (r *runner) toFree(text string) string {
	text = strings.ReplaceAll(text, "doorstep standalone", "doorstep standalone --listen 127.0.0.1:"+apiPort)
	text = strings.ReplaceAll(text, "doorstep receive", "doorstep receive --listen 127.0.0.1:"+receiverPort)
	for page, free := range r.ports {
		text = regexp.MustCompile(`\b`+page+`\b`).ReplaceAllString(text, free)
	}
	return text
}

// shell makes the command of a block, in a process group of its own.
func (r *runner) shell(ctx context.Context, text string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", r.toFree(r.exports+text))
	cmd.Dir = r.home
	cmd.Env = []string{
		"HOME=" + r.home, "PATH=" + filepath.Join(r.home, "bin") + ":" + os.Getenv("PATH"),
		"DOORSTEP_SERVER=http://127.0.0.1:" + r.ports[apiPort],
		// What go run needs where HOME is another.
		"GOMODCACHE=" + goEnv("GOMODCACHE"), "GOCACHE=" + goEnv("GOCACHE"), "GOFLAGS=-mod=readonly", "GOPROXY=off",
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

func goEnv(name string) string {
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

func (r *runner) foreground(at string, b block) {
	ctx, cancel := context.WithTimeout(r.Context(), 45*time.Second)
	defer cancel()
	out, err := r.shell(ctx, b.text).CombinedOutput()
	code := "0"
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		code = fmt.Sprint(exit.ExitCode())
	case err != nil:
		r.Errorf("%s: %v", at, err)
		return
	}
	want := b.mark.value("exit")
	if want == "" {
		want = "0"
	}
	if code != want {
		r.Errorf("%s: ended with exit code %s, not %s; it printed:\n%s", at, code, want, out)
	}
	for line := range strings.Lines(b.text) {
		if strings.HasPrefix(line, "export ") {
			r.exports += line
		}
	}
	r.output = normal(r.toPage(string(out)))
}

var client = &http.Client{Timeout: 5 * time.Second}

// start starts a block in place of what held its port, and waits until it answers.
func (r *runner) start(at string, b block) {
	port := b.mark.value("port")
	r.stop(port)
	log, err := os.CreateTemp(r.home, "log")
	r.must(err)
	defer func() { _ = log.Close() }()
	p := &background{cmd: r.shell(context.Background(), b.text), log: log.Name(), exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	r.must(p.cmd.Start())
	go func() {
		_ = p.cmd.Wait() // how it ended is in its log
		close(p.exited)
	}()
	r.running[port] = p
	deadline := time.Now().Add(45 * time.Second)
	for {
		// Any answer will do: a receiver takes no GET. That a connection is taken is not
		// enough, since standalone listens before it is ready.
		if answer, err := client.Get("http://127.0.0.1:" + r.ports[port] + "/healthz"); err == nil {
			_ = answer.Body.Close()
			break
		}
		select {
		case <-p.exited:
			r.Errorf("%s: ended without answering on port %s", at, port)
			return
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			r.Errorf("%s: does not answer on port %s", at, port)
			return
		}
	}
	out, err := os.ReadFile(log.Name())
	r.must(err)
	r.output = normal(r.toPage(string(out)))
}

// stop ends what runs on a page's port, as Ctrl-C would.
func (r *runner) stop(port string) {
	p := r.running[port]
	if p == nil {
		return
	}
	delete(r.running, port)
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGINT) // it may have ended
	select {
	case <-p.exited:
	case <-time.After(10 * time.Second):
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-p.exited
		r.Errorf("what ran on port %s did not end on an interrupt", port)
	}
}

func (r *runner) tellLogs() {
	for port, p := range r.running {
		if b, err := os.ReadFile(p.log); err == nil {
			r.Logf("what runs on port %s wrote:\n%s", port, b)
		}
	}
}

func (r *runner) toPage(out string) string {
	for page, free := range r.ports {
		out = strings.ReplaceAll(out, free, page)
	}
	return out
}

// match looks for the lines of an output block in what was printed, in their order.
func (r *runner) match(at, text string) {
	rest := r.output
	for _, want := range normal(text) {
		found := false
		for i, got := range rest {
			if got == want {
				rest, found = rest[i+1:], true
				break
			}
		}
		if !found {
			r.Errorf("%s: the page says %q, but this was printed:\n%s", at, want, strings.Join(r.output, "\n"))
			return
		}
	}
}

// varying is what differs from run to run, by what stands for it.
var varying = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "TIME"},
	{regexp.MustCompile(`whsec_\S+`), "KEY"},
	{regexp.MustCompile(`\b(\d+(\.\d+)?(ms|µs|s|m|h|d))+\b`), "DURATION"},
	{regexp.MustCompile(`\s+`), " "},
}

// normal gives the lines of an output without what varies, and without empty ones.
func normal(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		for _, v := range varying {
			line = v.pattern.ReplaceAllString(line, v.name)
		}
		if line = strings.TrimSpace(line); line != "" {
			out = append(out, line)
		}
	}
	return out
}
