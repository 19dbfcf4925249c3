package pebble

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	lockFile  = "LOCK"
	ownerFile = "OWNER"
)

// ownerLock is the exclusive hold on a store's folder. It ends with the process,
// however that ends.
type ownerLock struct {
	fs     vfs.FS
	dir    string
	closer io.Closer
}

// lockFolder makes the folder if need be and takes it, or says who holds it.
func lockFolder(fs vfs.FS, dir string) (*ownerLock, error) {
	if err := makeFolder(fs, dir); err != nil {
		return nil, fmt.Errorf("make the store's folder: %w", err)
	}
	c, err := fs.Lock(fs.PathJoin(dir, lockFile))
	if err != nil {
		owner, rerr := readFile(fs, fs.PathJoin(dir, ownerFile))
		if owner = strings.TrimSpace(owner); rerr != nil || owner == "" {
			owner = "another process"
		}
		return nil, fmt.Errorf("the store in %s is in use by %s; stop it first or choose another folder (%w)", dir, owner, err)
	}
	return &ownerLock{fs: fs, dir: dir, closer: c}, nil
}

// sign says in the folder who holds it. It is for people only: the lock is what counts.
func (l *ownerLock) sign() error {
	host, _ := os.Hostname()
	if err := writeFile(l.fs, l.dir, ownerFile, fmt.Sprintf("process %d on %s\n", os.Getpid(), host)); err != nil {
		return fmt.Errorf("write to the store's folder: %w (if its volume is full, free some space and start again: everything accepted is still there)", err)
	}
	return nil
}

func (l *ownerLock) release() error { return l.closer.Close() }

// makeFolder makes a folder, with those above it, and sees to it that they are still
// there after a crash.
func makeFolder(fs vfs.FS, dir string) error {
	if _, err := fs.Stat(dir); err == nil {
		return nil
	}
	parent := fs.PathDir(dir)
	if parent != dir {
		if err := makeFolder(fs, parent); err != nil {
			return err
		}
	}
	if err := fs.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return syncFolder(fs, parent)
}
