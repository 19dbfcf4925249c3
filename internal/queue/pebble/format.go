package pebble

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/errors/oserror"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// formatVersion is the version of everything in the folder: keys, records, and the
// version of pebble's files.
//
//	1  no namespaces; fresh deliveries are eight bytes of time
//	2  events are listed by namespace (kindListed); deliveries have sizes and order keys
const formatVersion = 2

const (
	formatFile = "FORMAT"
	dbFolder   = "db"
	formatName = "doorstep-queue"
	// formatNew: pebble's files may not be complete yet, nothing was ever acknowledged.
	formatNew = "new"
	// formatReady: a folder db without files is a loss, not a beginning.
	formatReady = "ready"
)

// checkFormat decides, without writing anything, whether the folder is ours, and gives its
// version: 0 says that the store has never been ready and nothing was ever acknowledged
// from it.
func checkFormat(fs vfs.FS, dir string) (version int, err error) {
	text, err := readFile(fs, fs.PathJoin(dir, formatFile))
	if oserror.IsNotExist(err) {
		names, err := strangers(fs, dir)
		if oserror.IsNotExist(err) {
			return 0, nil // the folder is still to be made
		}
		if err != nil {
			return 0, err
		}
		if len(names) > 0 {
			return 0, fmt.Errorf("%s holds files (%s) but no %s file, so it isn't a Doorstep store; it is left untouched: choose an empty folder", dir, strings.Join(names, ", "), formatFile)
		}
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the store's format: %w", err)
	}
	version, state, err := parseFormat(text)
	if err != nil {
		return 0, fmt.Errorf("%s: %w; it is left untouched", fs.PathJoin(dir, formatFile), err)
	}
	if version > formatVersion {
		return 0, fmt.Errorf("the store in %s has format %d and this Doorstep knows up to %d; it is left untouched: run the newer version that wrote it", dir, version, formatVersion)
	}
	if state == formatNew {
		return 0, nil
	}
	files, err := fs.List(fs.PathJoin(dir, dbFolder))
	if err != nil && !oserror.IsNotExist(err) {
		return 0, fmt.Errorf("read the store's folder: %w", err)
	}
	if !slices.ContainsFunc(files, func(n string) bool { return strings.HasPrefix(n, manifestMarker) }) {
		return 0, fmt.Errorf("the store in %s was in use, but its folder %s is missing or incomplete; it is left untouched: restore it from a backup, or remove the file %s to begin with an empty queue", dir, dbFolder, formatFile)
	}
	return version, nil
}

// begin prepares a folder for a new store. What an earlier beginning left, that a
// crash cut short, is removed: pebble may take such files for damaged ones.
func begin(fs vfs.FS, dir string) error {
	if err := writeFormat(fs, dir, formatNew); err != nil {
		return err
	}
	if err := fs.RemoveAll(fs.PathJoin(dir, dbFolder)); err != nil && !oserror.IsNotExist(err) {
		return fmt.Errorf("clear the new store's folder: %w", err)
	}
	return nil
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
	ours := []string{ownerFile, lockFile, ownerFile + tempSuffix, formatFile + tempSuffix, "lost+found"}
	names = slices.DeleteFunc(names, func(n string) bool { return slices.Contains(ours, n) })
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
