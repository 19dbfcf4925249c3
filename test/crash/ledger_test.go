package crash

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
)

// ledger is the producer's own record of what was acknowledged. An event counts once
// its number is in the file and the file is fsynced. Writers share an fsync.
type ledger struct {
	in   chan int
	done chan struct{}

	mu    sync.Mutex
	acked map[int]bool
	err   error
}

func openLedger(t *testing.T, path string) *ledger {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	l := &ledger{in: make(chan int, 1024), done: make(chan struct{}), acked: map[int]bool{}}
	go l.write(f)
	return l
}

func (l *ledger) write(f *os.File) {
	defer close(l.done)
	defer func() { _ = f.Close() }()
	w := bufio.NewWriter(f)
	for n := range l.in {
		batch := []int{n}
		for more := true; more; {
			select {
			case n, ok := <-l.in:
				if more = ok; ok {
					batch = append(batch, n)
				}
			default:
				more = false
			}
		}
		for _, n := range batch {
			_, _ = w.WriteString(strconv.Itoa(n) + "\n") // the error stays in w
		}
		err := w.Flush()
		if err == nil {
			err = f.Sync()
		}
		l.mu.Lock()
		if err != nil {
			l.err = fmt.Errorf("writing the ledger: %w", err)
		} else {
			for _, n := range batch {
				l.acked[n] = true
			}
		}
		l.mu.Unlock()
	}
}

// ack notes that event n was acknowledged.
func (l *ledger) ack(n int) { l.in <- n }

// count is how many events are noted for certain.
func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked)
}

// close ends the ledger and returns what is in it. No ack may follow.
func (l *ledger) close(t *testing.T) map[int]bool {
	t.Helper()
	close(l.in)
	<-l.done
	if l.err != nil {
		t.Fatal(l.err)
	}
	return l.acked
}
