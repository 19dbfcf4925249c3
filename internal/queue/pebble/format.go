package pebble

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/errors/oserror"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// formatVersion is the version of everything in the folder: keys, records, and the
// version of pebble's files.
const formatVersion = 1

const (
	formatFile = "FORMAT"
	dbFolder   = "db"
	formatName = "doorstep-queue"
	// formatNew: pebble's files may not be complete yet, nothing was ever acknowledged.
	formatNew = "new"
	// formatReady: a folder db without files is a loss, not a beginning.
	formatReady = "ready"
)

// checkFormat decides, before anything is written, whether the folder is ours. fresh
// says that the store is to be marked ready after its first open.
func checkFormat(fs vfs.FS, dir string) (fresh bool, err error) {
	text, err := readFile(fs, fs.PathJoin(dir, formatFile))
	if oserror.IsNotExist(err) {
		names, err := strangers(fs, dir)
		if err != nil {
			return false, err
		}
		if len(names) > 0 {
			return false, fmt.Errorf("%s holds files (%s) but no %s file, so it isn't a Doorstep store; it is left untouched: choose an empty folder", dir, strings.Join(names, ", "), formatFile)
		}
		return true, writeFormat(fs, dir, formatNew)
	}
	if err != nil {
		return false, fmt.Errorf("read the store's format: %w", err)
	}
	version, state, err := parseFormat(text)
	if err != nil {
		return false, fmt.Errorf("%s: %w; it is left untouched", fs.PathJoin(dir, formatFile), err)
	}
	if version > formatVersion {
		return false, fmt.Errorf("the store in %s has format %d and this Doorstep knows up to %d; it is left untouched: run the newer version that wrote it", dir, version, formatVersion)
	}
	if state == formatNew {
		return true, nil
	}
	if files, err := fs.List(fs.PathJoin(dir, dbFolder)); err != nil || len(files) == 0 {
		return false, fmt.Errorf("the store in %s was in use, but its folder %s is missing or empty; it is left untouched: restore it from a backup, or remove the file %s to begin with an empty queue", dir, dbFolder, formatFile)
	}
	return false, nil
}

func parseFormat(text string) (version int, state string, err error) {
	f := strings.Fields(text)
	if len(f) != 3 || f[0] != formatName || !slices.Contains([]string{formatNew, formatReady}, f[2]) {
		return 0, "", errors.New("this isn't the format file of a Doorstep store")
	}
	version, err = strconv.Atoi(f[1])
	if err != nil || version < 1 {
		return 0, "", errors.New("unknown format version")
	}
	return version, f[2], nil
}

// strangers lists what is in a folder beside our own files and what file systems
// put there.
func strangers(fs vfs.FS, dir string) ([]string, error) {
	names, err := fs.List(dir)
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(n string) bool {
		return n == ownerFile || n == lockFile || n == "lost+found" || n == formatFile+tempSuffix
	})
	slices.Sort(names)
	return names[:min(len(names), 5)], nil
}

func writeFormat(fs vfs.FS, dir, state string) error {
	text := fmt.Sprintf("%s %d %s\n", formatName, formatVersion, state)
	if err := writeFile(fs, dir, formatFile, text); err != nil {
		return fmt.Errorf("write the store's format: %w", err)
	}
	return nil
}

const tempSuffix = ".tmp"

// writeFile replaces a file whole: after a crash the old or the new content is there.
func writeFile(fs vfs.FS, dir, name, text string) error {
	path := fs.PathJoin(dir, name)
	f, err := fs.Create(path+tempSuffix, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := fs.Rename(path+tempSuffix, path); err != nil {
		return err
	}
	return syncFolder(fs, dir)
}

func syncFolder(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func readFile(fs vfs.FS, path string) (string, error) {
	f, err := fs.Open(path)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(io.LimitReader(f, 4096))
	return string(b), errors.Join(err, f.Close())
}

const (
	lockFile  = "LOCK"
	ownerFile = "OWNER"
)

// ownerLock is the exclusive hold on a store's folder. It ends with the process,
// however that ends.
type ownerLock struct{ closer io.Closer }

// lockFolder makes the folder if need be and takes it, or says who holds it.
func lockFolder(fs vfs.FS, dir string) (*ownerLock, error) {
	if err := makeFolder(fs, dir); err != nil {
		return nil, fmt.Errorf("make the store's folder: %w", err)
	}
	c, err := fs.Lock(fs.PathJoin(dir, lockFile))
	if err != nil {
		owner, rerr := readFile(fs, fs.PathJoin(dir, ownerFile))
		if rerr != nil || strings.TrimSpace(owner) == "" {
			owner = "another process"
		}
		return nil, fmt.Errorf("the store in %s is in use by %s; stop it first or choose another folder (%w)", dir, strings.TrimSpace(owner), err)
	}
	host, _ := os.Hostname()
	// For people only: the lock is what counts.
	if err := writeFile(fs, dir, ownerFile, fmt.Sprintf("process %d on %s\n", os.Getpid(), host)); err != nil {
		return nil, errors.Join(fmt.Errorf("write to the store's folder: %w", err), c.Close())
	}
	return &ownerLock{closer: c}, nil
}

// makeFolder makes a folder and sees to it that it is still there after a crash.
func makeFolder(fs vfs.FS, dir string) error {
	if _, err := fs.Stat(dir); err == nil {
		return nil
	}
	if err := fs.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return syncFolder(fs, fs.PathDir(dir))
}

func (l *ownerLock) release() error { return l.closer.Close() }
