package harness

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Command says how to start a process.
type Command struct {
	// Name is used in messages.
	Name string
	Path string
	Args []string
	// Env is added to this process's environment.
	Env []string
	Dir string
	// Log gets the process's standard error, and its standard output unless Stdout is
	// set. Nil keeps only the last lines, for messages.
	Log    io.Writer
	Stdout io.Writer
}

// Process is a running child.
type Process struct {
	name  string
	cmd   *exec.Cmd
	stdin io.Closer
	tail  *tail
	done  chan struct{}
}

// Start starts c. The child's standard input is a pipe that closes when this
// process ends, however it ends: children of this repository's test programs stop
// then (see ExitWithParent).
func Start(c Command) (*Process, error) {
	p := &Process{name: c.Name, cmd: exec.Command(c.Path, c.Args...), tail: &tail{next: c.Log}, done: make(chan struct{})}
	p.cmd.Dir = c.Dir
	p.cmd.Env = append(os.Environ(), c.Env...)
	p.cmd.Stderr = p.tail
	p.cmd.Stdout = p.tail
	if c.Stdout != nil {
		p.cmd.Stdout = c.Stdout
	}
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.Name, err)
	}
	p.stdin = stdin
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.Name, err)
	}
	go func() {
		_ = p.cmd.Wait() // the state is read from cmd.ProcessState
		close(p.done)
	}()
	return p, nil
}

// ExitWithParent ends this process when its standard input closes, which is when
// the process that started it ends. Call it first thing in a child.
func ExitWithParent() {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
}

// Pid is the child's process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Exited is closed once the child has ended.
func (p *Process) Exited() <-chan struct{} { return p.done }

// Running reports whether the child has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Tail is the last of what the child wrote, for messages.
func (p *Process) Tail() string { return p.tail.String() }

// CloseInput closes the child's standard input, which it otherwise finds closed when this process ends.
func (p *Process) CloseInput() { _ = p.stdin.Close() } // nobody is told: it is a pipe

// Kill ends the child at once (SIGKILL) and waits for its end. Killing an ended
// child does nothing.
func (p *Process) Kill() {
	if p.Running() {
		_ = p.cmd.Process.Kill() // the only error is that it has just ended
	}
	<-p.done
}

// Signal sends sig.
func (p *Process) Signal(sig os.Signal) error { return p.cmd.Process.Signal(sig) }

// Wait waits for the child's end and returns its exit code, -1 if a signal ended
// it.
func (p *Process) Wait(timeout time.Duration) (int, error) {
	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-t.C:
		return 0, fmt.Errorf("%s (pid %d) is still running after %v; its last lines:\n%s", p.name, p.Pid(), timeout, p.Tail())
	}
}

// Stop asks the child to end (SIGTERM), waits for it, and kills it when it does not.
// The error says how it went wrong; nil is an exit with code 0 in time.
func (p *Process) Stop(grace time.Duration) error {
	if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stopping %s: %w", p.name, err)
	}
	code, err := p.Wait(grace)
	if err != nil {
		p.Kill()
		return err
	}
	if code != 0 {
		return fmt.Errorf("%s ended with exit code %d; its last lines:\n%s", p.name, code, p.Tail())
	}
	return nil
}

// tailBytes is how much of a child's output is kept for messages.
const tailBytes = 4096

// tail passes output on and remembers its end.
type tail struct {
	next io.Writer
	mu   sync.Mutex
	last []byte
}

// Write passes b on and keeps its end.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	t.last = append(t.last, b...)
	if extra := len(t.last) - tailBytes; extra > 0 {
		t.last = append(t.last[:0], t.last[extra:]...)
	}
	t.mu.Unlock()
	if t.next != nil {
		return t.next.Write(b)
	}
	return len(b), nil
}

// String is what is remembered.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.last))
}
