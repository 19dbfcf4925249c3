package pebble

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/go-logr/logr"
)

// pebbleLogger passes on what pebble has to say.
type pebbleLogger struct {
	log   logr.Logger
	fatal func(cause string)

	mu   sync.Mutex
	told map[string]time.Time
	more map[string]int
}

// Infof takes pebble's chatter of flushes and compactions.
func (l *pebbleLogger) Infof(format string, args ...any) {
	if v := l.log.V(2); v.Enabled() {
		v.Info("Store: " + oneLine(format, args))
	}
}

// Errorf takes what went wrong and was survived.
func (l *pebbleLogger) Errorf(format string, args ...any) {
	l.seldom("error", func(more int) {
		l.log.Info("Store reports an error: "+oneLine(format, args), "moreSinceLast", more)
	})
}

// Fatalf is called when pebble can't go on. It must not return.
func (l *pebbleLogger) Fatalf(format string, args ...any) {
	cause := oneLine(format, args)
	l.log.Error(nil, "The store can't go on; everything acknowledged is on disk; free or mend the disk and restart", "cause", cause)
	if l.fatal != nil {
		l.fatal(cause)
		return
	}
	os.Exit(exitStoreFailed)
}

// seldomEvery is how often the same kind of trouble is told of: pebble tries again at
// once, many times a second.
const seldomEvery = time.Minute

// seldom tells of a kind of trouble at most once a minute, with how often it came since.
func (l *pebbleLogger) seldom(kind string, tell func(more int)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.told == nil {
		l.told, l.more = map[string]time.Time{}, map[string]int{}
	}
	if at, ok := l.told[kind]; ok && time.Since(at) < seldomEvery {
		l.more[kind]++
		return
	}
	tell(l.more[kind])
	l.told[kind], l.more[kind] = time.Now(), 0
}

// plainError keeps an error's words and leaves out the stack that pebble's carry.
func plainError(err error) error { return errors.New(err.Error()) }

// exitStoreFailed is EX_IOERR of sysexits.h.
const exitStoreFailed = 74

func oneLine(format string, args []any) string {
	return strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ")
}

// listener replaces pebble's default, which ends the process at a damaged block:
// almost all other records stay readable.
func (l *pebbleLogger) listener() *pebbledb.EventListener {
	e := &pebbledb.EventListener{
		DataCorruption: func(i pebbledb.DataCorruptionInfo) {
			l.log.Error(i.Details, "A file of the store is damaged; records outside of the damage are still served", "file", i.Path)
		},
		BackgroundError: func(err error) {
			l.seldom("background", func(more int) {
				l.log.Error(plainError(err), "The store's background work fails and is tried again; the disk may be full", "moreSinceLast", more)
			})
		},
		DiskSlow: func(i pebbledb.DiskSlowInfo) {
			l.seldom("slow", func(more int) {
				l.log.Info("The store's disk is slow", "operation", i.OpType.String(), "took", i.Duration.String(), "moreSinceLast", more)
			})
		},
		WriteStallBegin: func(i pebbledb.WriteStallBeginInfo) {
			l.log.V(1).Info("The store holds writes back until its background work has caught up", "reason", i.Reason)
		},
		PossibleAPIMisuse: func(i pebbledb.PossibleAPIMisuseInfo) {
			l.log.Error(nil, "A record was not written and removed in turn; please report this", "kind", i.Kind.String())
		},
	}
	e.EnsureDefaults(l)
	return e
}
