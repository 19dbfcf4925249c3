package pebble_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/queue"
	"github.com/doorstep-dev/doorstep/internal/queue/pebble"
)

// sizeSlack is what a store as small as this one may use over its size: its log (four files
// of a memtable's size, and five that are kept to be written again, 144 MiB), and what a
// compaction writes beside its input. A larger store leaves room for them.
const sizeSlack = 192 << 20

// case DL161: the store's size stays within maxBytes whatever is delivered, and what is kept
// for people is kept.
func TestSizeStaysWithinMaxBytes(t *testing.T) {
	t.Parallel()
	const most = 64 << 20
	for _, c := range []struct {
		name string
		dead int // one of so many is a dead letter; 0: none
		mib  int // written in all
	}{{"all delivered", 0, 600}, {"one of ten a dead letter", 10, 300}} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t, pebble.Options{Dir: t.TempDir()})
			w := &sizeWriter{s: s, dead: c.dead, rng: rand.New(rand.NewPCG(1, 3))}
			largest := int64(0)
			for w.written < int64(c.mib)<<20 {
				for step := w.written + 20<<20; w.written < step; {
					w.write(t)
				}
				if _, err := s.Prune(t.Context(), queue.Retention{MaxBytes: most}); err != nil {
					t.Fatal(err)
				}
				limit := most + w.kept + sizeSlack
				used := settled(s, limit)
				largest = max(largest, used)
				if used > limit {
					t.Fatalf("after %d MiB the store has %d MiB, want at most %d", w.written>>20, used>>20, limit>>20)
				}
			}
			w.unrecorded.Wait()
			if n := s.Pruned(); n.ByBytes == 0 || n.ByBytes != n.Events || n.ByBytesBytes != n.Bytes || n.Bytes < w.written-w.kept-most {
				t.Errorf("%+v, want events forgotten for their bytes", n)
			}
			if got := s.Counts(endpoints[0]).DeadLettered; got != len(w.deads) {
				t.Errorf("%d dead letters, want all %d", got, len(w.deads))
			}
			for _, seq := range w.deads {
				if _, err := s.Event(t.Context(), seq); err != nil {
					t.Fatalf("dead letter %d: %v", seq, err)
				}
			}
			t.Logf("%d MiB written, %d MiB of dead letters kept, at most %d MiB used", w.written>>20, w.kept>>20, largest>>20)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// settled is the store's size, once what compacts it beside the writer, on a machine that
// may have much else to do, has had time to bring it under a limit.
func settled(s *pebble.Store, limit int64) int64 {
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for range 300 {
		if used := s.Usage().UsedBytes; used <= limit {
			return used
		}
		<-look.C
	}
	return s.Usage().UsedBytes
}

// sizeWriter accepts and delivers payloads of 8 to 64 KiB that don't compress.
type sizeWriter struct {
	s             *pebble.Store
	rng           *rand.Rand
	dead, events  int
	written, kept int64
	deads         []queue.Seq
	unrecorded    sync.WaitGroup
}

func (w *sizeWriter) write(t *testing.T) {
	var batch []queue.NewEvent
	for range 32 { // of one fsync
		n := newEvent(fmt.Sprintf("%d-%d", w.events, len(batch)), endpoints[0])
		n.Event.Body = make([]byte, 8<<10+w.rng.IntN(56<<10))
		for j := 0; j+8 <= len(n.Event.Body); j += 8 {
			binary.LittleEndian.PutUint64(n.Event.Body[j:], w.rng.Uint64())
		}
		batch = append(batch, n)
	}
	acc, err := w.s.Accept(t.Context(), batch)
	if err != nil {
		t.Fatal(err)
	}
	for j, a := range acc {
		size := int64(len(batch[j].Event.Body))
		w.written += size
		to := queue.Delivered
		if w.events++; w.dead > 0 && w.events%w.dead == 0 {
			to = queue.DeadLettered
			w.deads = append(w.deads, a.Seq)
			w.kept += size
		}
		w.unrecorded.Add(1)
		w.s.Record(outcome(endpoints[0], a.Seq, to), func(err error) {
			defer w.unrecorded.Done()
			if err != nil {
				t.Error(err)
			}
		})
	}
}
