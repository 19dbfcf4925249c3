package manifest

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Times of Watch. A change is seen at once where the file system tells, at the
// latest after pollInterval where it does not (network file systems, links to
// elsewhere, no watches left), and is read once it was quiet for debounce, at the
// latest after maxDebounce.
const (
	pollInterval = time.Second
	debounce     = 100 * time.Millisecond
	maxDebounce  = 500 * time.Millisecond
)

// Watch reads the file or folder root, calls onChange with the first Snapshot, and
// again each time a Snapshot says something else, until ctx is done; then it
// returns nil. onChange runs in the caller's goroutine and is never called twice at
// once. A change is reported within 2 s. skip is as for NewLoader, and so are the
// errors.
func Watch(ctx context.Context, root string, onChange func(Snapshot), skip ...string) error {
	l, err := NewLoader(root, skip...)
	if err != nil {
		return err
	}
	return l.Watch(ctx, onChange)
}

// Watch is the function Watch on a Loader that may have loaded before.
func (l *Loader) Watch(ctx context.Context, onChange func(Snapshot)) error {
	w := &watcher{loader: l, watched: map[string]bool{}}
	// Without a notifier (its two channels nil) everything is found by polling.
	var events chan fsnotify.Event
	var failures chan error
	if n, err := fsnotify.NewWatcher(); err == nil {
		defer func() { _ = n.Close() }()
		w.notifier, events, failures = n, n.Events, n.Errors
	}
	w.look(l.walk(), onChange)

	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	quiet := newStopped()
	defer quiet.Stop()
	var since time.Time // of the first event not yet read
	changed := func() {
		if since.IsZero() {
			since = time.Now()
		}
		quiet.Reset(max(0, min(debounce, maxDebounce-time.Since(since))))
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-events:
			if w.matters(e) {
				changed()
			}
		case err := <-failures:
			if err != nil { // events were lost
				changed()
			}
		case <-quiet.C:
			since = time.Time{}
			w.look(l.walk(), onChange)
		case <-poll.C:
			if t := l.walk(); since.IsZero() && (w.unsettled || !t.same(w.tree)) {
				w.look(t, onChange)
			}
		}
	}
}

func newStopped() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// watcher is the state of one Watch.
type watcher struct {
	loader   *Loader
	notifier *fsnotify.Watcher
	tree     tree
	digest   string
	watched  map[string]bool
	// unsettled is set when files changed under the last look, so that what was read
	// is not what the walk had seen.
	unsettled bool
}

// look reads everything, reports it if it says something new, and watches the
// folders there are now.
func (w *watcher) look(t tree, onChange func(Snapshot)) {
	w.watch(t) // before reading: what is written from here on makes an event
	s := w.loader.load(t)
	w.tree = t
	w.unsettled = !t.same(w.loader.walk())
	if s.Digest != w.digest {
		w.digest = s.Digest
		onChange(s)
	}
}

// matters reports whether an event can change what a walk finds. A store that lives
// in the same folder writes all day, and what it writes does not matter.
func (w *watcher) matters(e fsnotify.Event) bool {
	folder, name := filepath.Split(e.Name)
	root := filepath.Clean(w.loader.root)
	switch {
	case e.Op == fsnotify.Chmod: // reading a file changes its times
		return false
	case filepath.Clean(e.Name) == root, isManifest(name) && !strings.HasPrefix(name, "."):
		return filepath.Clean(e.Name) == root || slices.Contains(w.tree.folders, filepath.Clean(folder))
	case name == "..data": // a ConfigMap volume is swapped by this link
		return true
	}
	// Anything without an extension may be a folder that comes or goes.
	return filepath.Ext(name) == "" && e.Op&^(fsnotify.Write|fsnotify.Chmod) != 0 && filepath.Dir(root) != filepath.Clean(folder)
}

// watch sets the notifier on every folder of the tree, and on the one that holds
// its root, which may be made later or be a link that is swapped. A folder that
// can't be watched is polled.
func (w *watcher) watch(t tree) {
	if w.notifier == nil {
		return
	}
	want := map[string]bool{filepath.Dir(filepath.Clean(w.loader.root)): true}
	for _, folder := range t.folders {
		want[folder] = true
	}
	for folder := range w.watched {
		if !want[folder] {
			_ = w.notifier.Remove(folder)
			delete(w.watched, folder)
		}
	}
	for folder := range want {
		// Added again each time: the path may lead to another folder by now.
		if err := w.notifier.Add(folder); err == nil {
			w.watched[folder] = true
		}
	}
}
