package harness

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"
)

// child lets this test binary stand in for a process under test.
func TestMain(m *testing.M) {
	switch os.Getenv("HARNESS_CHILD") {
	case "":
		os.Exit(m.Run())
	case "until-parent-ends":
		ExitWithParent()
		select {}
	case "fails":
		_, _ = os.Stderr.WriteString("no luck today\n")
		os.Exit(7)
	}
}

func startChild(t *testing.T, what string) *Process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, err := Start(Command{Name: what, Path: self, Env: []string{"HARNESS_CHILD=" + what}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

func TestChildEndsWithItsParent(t *testing.T) {
	p := startChild(t, "until-parent-ends")
	if !p.Running() {
		t.Fatalf("the child ended at once: %s", p.Tail())
	}
	_ = p.stdin.Close() // what the kernel does when a parent ends
	if code, err := p.Wait(time.Minute); err != nil || code != 3 {
		t.Errorf("exit code %d, %v; want 3", code, err)
	}
}

func TestStopTellsOfABadExit(t *testing.T) {
	p := startChild(t, "fails")
	<-p.Exited()
	err := p.Stop(time.Minute)
	if err == nil || !strings.Contains(err.Error(), "exit code 7") || !strings.Contains(err.Error(), "no luck today") {
		t.Errorf("stopping says %v; want the exit code and the child's words", err)
	}
}

func TestKillEndsOnlyItsChild(t *testing.T) {
	a, b := startChild(t, "until-parent-ends"), startChild(t, "until-parent-ends")
	a.Kill()
	if a.Running() || !b.Running() {
		t.Errorf("after killing the first: first running %v, second running %v", a.Running(), b.Running())
	}
	a.Kill() // a second time does nothing
}

func TestAwaitGivesUp(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := Await(ctx, time.Hour, "a thing", func() (bool, error) { return false, nil })
	if err == nil || !strings.Contains(err.Error(), "a thing") {
		t.Errorf("Await says %v; want that it waited for a thing", err)
	}
}
