package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/doorstep-dev/doorstep/internal/queue"
)

// How many are selected is told first, and nothing is sent without a yes.
func TestReplayDeadLetters(t *testing.T) {
	w := history(t)
	w.finish(2, orders, queue.DeadLettered, "Rejected")
	args := []string{"replay", "--dead-letters", "--endpoint", "orders"}
	w.in = "n\n"
	if r := w.want(1, args...); r.out != "" || r.err != "Send 2 deliveries of endpoint orders again? [y/N] error: nothing was replayed; answer y, or give --yes\n" {
		t.Errorf("stdout %q, stderr %q", r.out, r.err)
	}
	w.in = ""
	if r := w.want(1, args...); r.out != "" || !strings.Contains(r.err, "[y/N] \nerror: nothing was replayed") {
		t.Errorf("stdout %q, stderr %q", r.out, r.err)
	}
	if r := w.want(0, append(args, "--dry-run")...); r.out != "2 deliveries of endpoint orders would be replayed\n" || r.err != "" {
		t.Errorf("stdout %q, stderr %q", r.out, r.err)
	}
	if got := w.queue.Counts(orders).DeadLettered; got != 2 {
		t.Fatalf("%d dead letters are left, want 2: nobody said yes", got)
	}
	w.in = "Yes\n"
	if r := w.want(0, args...); r.out != "2 deliveries of endpoint orders replayed\n" {
		t.Errorf("stdout is %q", r.out)
	}
	if r := w.want(0, append(args, "--yes")...); r.out != "" || r.err != "No deliveries of endpoint orders in default namespace are selected.\n" {
		t.Errorf("stdout %q, stderr %q", r.out, r.err)
	}
}

// Each flag that selects reaches the API as what it is.
func TestReplayBySelection(t *testing.T) {
	w := newWorld(t)
	for i := range 4 {
		w.send(fmt.Sprint("evt_", i+1), []string{"order.created", "order.paid"}[i%2])
	}
	w.finish(1, orders, queue.DeadLettered, queue.ReasonOutOfAttempts)
	w.finish(2, orders, queue.DeadLettered, "Rejected")
	w.finish(3, orders, queue.Delivered, "")
	w.fail(4, orders, queue.DeadLettered, queue.ReasonOutOfAttempts)
	for _, row := range []struct {
		flags string
		want  int
	}{
		{"--state deadLettered", 3},
		{"--state deadLettered,filterError", 3},
		{"--state delivered --type order.* --force", 1},
		{"--type order.paid", 2},
		{"--type order.paid --type order.created", 3},
		{"--reason OutOfAttempts", 2},
		{"--reason OutOfAttempts,Rejected --status 0", 1},
		{"--status 503", 2},
		{"--handler-version v41", 0},
		{"--since 90s", 3},
		{"--since 89s", 0},
		{"--until 89s", 3},
		{"--until 90s", 0},
		{"--since 2026-11-30T12:00:00Z --until 2026-11-30T12:00:01Z --status 503 --type order.paid", 1},
	} {
		args := append([]string{"replay", "--endpoint", "orders", "--dry-run"}, strings.Fields(row.flags)...)
		want := fmt.Sprintf("%s of endpoint orders would be replayed\n", deliveries(row.want))
		if row.want == 0 {
			want = ""
		}
		if r := w.want(0, args...); r.out != want {
			t.Errorf("%s: %q, want %q; %s", row.flags, r.out, want, r.err)
		}
	}
	if r := w.want(0, "replay", "--endpoint", "orders", "--reason", "Rejected", "--yes", "--because", "mended"); r.out != "1 delivery of endpoint orders replayed\n" {
		t.Errorf("stdout is %q", r.out)
	}
	if r := w.want(0, "get", "audit"); strings.Count(r.out, "\n") != 2 || !strings.Contains(r.out, "replay") || !strings.Contains(r.out, "reason given: mended") {
		t.Errorf("the audit records are\n%s", r.out)
	}
}

// A selection of more than one call's worth is replayed to its end.
func TestReplayGoesOnToTheEnd(t *testing.T) {
	const n = 1003
	w := newWorld(t)
	for i := range n {
		w.send(fmt.Sprint("evt_", i), "order.created")
		w.finish(queue.Seq(i+1), orders, queue.DeadLettered, "Rejected")
	}
	if r := w.want(0, "replay", "--dead-letters", "--endpoint", "orders", "--yes"); r.out != "1003 deliveries of endpoint orders replayed\n" {
		t.Errorf("stdout is %q", r.out)
	}
	if got := w.queue.Counts(orders).DeadLettered; got != 0 {
		t.Errorf("%d dead letters are left", got)
	}
}

func TestReplaysThatAreRefused(t *testing.T) {
	w := history(t)
	for _, row := range []struct {
		flags, err string
	}{
		{"", "error: give the event's WEBHOOK-ID"},
		{"--endpoint orders", "error: give the event's WEBHOOK-ID"},
		{"--dead-letters", "error: a replay by selection needs --endpoint NAME"},
		{"--type order.*", "error: a replay by selection needs --endpoint NAME"},
		{"evt_1 --type order.*", "error: a WEBHOOK-ID names the one event"},
		{"evt_1 --dry-run", "error: a WEBHOOK-ID names the one event"},
		{"--dead-letters --state delivered --endpoint orders", "error: --dead-letters is the same as --state deadLettered"},
		{"--endpoint orders --since yesterday", "error: --since must be a time such as"},
		{"--endpoint orders --state pending", "error: select.states"},
		{"--endpoint orders --state delivered --force", "error: select"},
		{"--endpoint orders --status x", "error: invalid argument"},
		{"--endpoint nope --dead-letters", "error: There is no such endpoint"},
	} {
		if r := w.want(1, append([]string{"replay"}, strings.Fields(row.flags)...)...); r.out != "" || !strings.HasPrefix(r.err, row.err) {
			t.Errorf("%s: stdout %q, stderr %q, want %q", row.flags, r.out, r.err, row.err)
		}
	}
}
