package manifest

import (
	"fmt"
	"os"
	"path/filepath"
)

// replaceFile puts b at path in one step, readable by its owner alone: after a
// crash the file is the former one or the new one, whole and on disk.
func replaceFile(path string, b []byte) error {
	temp, err := writeTemp(path, b)
	if err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		_ = os.Remove(temp)
		return err
	}
	return syncFolder(filepath.Dir(path))
}

// CreateFile puts b at path, readable by its owner alone, in one step: after a crash
// there is no file, or the whole one on disk. It never replaces: if path exists, the
// error is fs.ErrExist and nothing is changed.
func CreateFile(path string, b []byte) error {
	temp, err := writeTemp(path, b)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temp) }()
	if err := os.Link(temp, path); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

// writeTemp writes b to a new synced file beside path. Its name begins with a dot,
// so that no walk takes it for a manifest.
func writeTemp(path string, b []byte) (name string, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	if _, err = f.Write(b); err != nil {
		return "", err
	}
	if err = f.Sync(); err != nil {
		return "", err
	}
	return f.Name(), f.Close()
}

// MakeFolder makes a folder and those above it, for the owner alone, on disk.
func MakeFolder(path string) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil
	}
	if parent := filepath.Dir(path); parent != path {
		if err := MakeFolder(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		// Made by another process since it was looked for, or a file is in its place.
		if info, serr := os.Stat(path); serr != nil || !info.IsDir() {
			return err
		}
	}
	return syncFolder(filepath.Dir(path))
}

func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return nil
}
