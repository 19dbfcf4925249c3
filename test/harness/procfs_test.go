package harness

import (
	"os"
	"testing"
	"time"
)

func TestParseStatCountsUserAndSystemTime(t *testing.T) {
	// A command may hold spaces and brackets: only the last bracket ends it.
	stat := "4242 (a (b) c) S 1 4242 4242 0 -1 4194304 900 0 0 0 150 25 7 9 20 0 8 0 100 1 1\n"
	got, err := parseStat([]byte(stat))
	if err != nil {
		t.Fatal(err)
	}
	if want := 1750 * time.Millisecond; got != want {
		t.Errorf("processor time is %v, want %v (150 user and 25 system ticks, none of the children's)", got, want)
	}
	if _, err := parseStat([]byte("4242 (a) S 1 2")); err == nil {
		t.Error("a stat line that is cut short gave no error")
	}
}

func TestParseHWM(t *testing.T) {
	status := []byte("Name:\tx\nVmPeak:\t  900 kB\nVmHWM:\t  20480 kB\nVmRSS:\t 10240 kB\n")
	for field, want := range map[string]int64{"VmHWM": 20 << 20, "VmRSS": 10 << 20} {
		if got, err := parseMemory(status, field); err != nil || got != want {
			t.Errorf("%s is %d bytes, %v; want %d", field, got, err, want)
		}
	}
	for _, bad := range []string{"Name:\tx\n", "Name:\tx\nVmHWM:\t12 MB\n", "Name:\tx\nVmHWM:\tx kB\n"} {
		if _, err := parseMemory([]byte(bad), "VmHWM"); err == nil {
			t.Errorf("%q gave no error", bad)
		}
	}
}

func TestParseMachineCountsWaitingAsIdle(t *testing.T) {
	got, err := parseMachine([]byte("cpu  10 1 5 100 50 1 2 3 4 4\ncpu0 1 1 1 1 1 1 1 1 1 1\n"))
	if err != nil {
		t.Fatal(err)
	}
	if want := (Machine{Busy: 220 * time.Millisecond, Total: 1720 * time.Millisecond}); got != want {
		t.Errorf("the machine's time is %+v, want %+v", got, want)
	}
	if _, err := parseMachine([]byte("cpu0 1 2 3 4 5 6 7 8\n")); err == nil {
		t.Error("a first line of one core gave no error")
	}
}

func TestOwnFiguresAreReadable(t *testing.T) {
	cpu, err := CPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	rss, err := PeakRSS(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if now, err := RSS(os.Getpid()); err != nil || now > rss+1<<20 {
		t.Errorf("this process is said to have %d bytes now, %v; at most it had %d", now, err, rss)
	}
	if cpu < 0 || cpu > time.Hour || rss < 1<<20 || rss > 64<<30 {
		t.Errorf("this process is said to have used %v and %d bytes", cpu, rss)
	}
}
