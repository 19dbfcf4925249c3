package manifest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Bounds of what is read. They keep a folder named by mistake from filling memory.
const (
	maxFileBytes = 4 << 20
	maxFiles     = 10_000
	maxFolders   = 10_000
	maxDepth     = 32
)

// tree is what a walk found.
type tree struct {
	files []treeFile
	// folders are the real paths of the folders listed, to be watched.
	folders  []string
	problems []Problem
	// incomplete is set when a part could not be listed: a file that is not in
	// files may be there all the same.
	incomplete bool
}

// treeFile is a file to read. Its info is that of the file behind any links.
type treeFile struct {
	path string
	info fs.FileInfo
}

// walk lists the manifests under root, or root alone if it is a file, in the order
// of their names. Names that begin with a dot are passed over: so is the ..data of
// a ConfigMap volume, whose files are found by the links beside it. Links are
// followed, and each real file and folder is taken once, so loops end. The folders
// of skip are taken for read.
func walk(root string, skip []string) tree {
	t := &walker{seen: make(map[string]bool)}
	for _, folder := range skip {
		if target, ok := realPath(folder); ok {
			t.seen[target] = true
		}
	}
	info, err := os.Stat(root)
	switch {
	case err != nil:
		t.fail(root, unreadable(err)+"; the endpoints of the last plan are held, not deleted")
	case info.IsDir():
		target, ok := realPath(root)
		if !ok {
			t.fail(root, "the folder's real path can't be found; name the folder by another path")
			break
		}
		t.folder(root, target, 0)
	case info.Mode().IsRegular():
		t.files = append(t.files, treeFile{path: root, info: info})
	default:
		t.fail(root, noManifests)
	}
	return t.tree
}

// CheckRoot says why root can never be read as manifests, whatever is written to
// it: it is there and is neither a folder nor a regular file, such as a pipe or a
// device. What is not there, or can't be read yet, is no error here; Load tells it.
func CheckRoot(root string) error {
	info, err := os.Stat(root)
	if err != nil || info.IsDir() || info.Mode().IsRegular() {
		return nil
	}
	return fmt.Errorf("%s: %s", root, noManifests)
}

// noManifests is said of a pipe, a device or a socket in place of the manifests.
const noManifests = "neither a folder nor a regular file; name one of these"

type walker struct {
	tree
	seen map[string]bool // real paths
	full bool
}

func (t *walker) fail(path, message string) {
	t.problems = append(t.problems, Problem{File: path, Message: message})
	t.incomplete = true
}

// first reports whether target, a real path, was not seen before.
func (t *walker) first(target string) bool {
	was := t.seen[target]
	t.seen[target] = true
	return !was
}

// realPath is the absolute path without links, and false where there is none.
func realPath(path string) (string, bool) {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", false
	}
	target, err = filepath.Abs(target)
	return target, err == nil
}

func (t *walker) folder(path, target string, depth int) {
	switch {
	case t.full || !t.first(target):
		return
	case depth > maxDepth:
		t.fail(path, fmt.Sprintf("more than %d folders deep, so it is not read; move the manifests up", maxDepth))
		return
	case len(t.folders) >= maxFolders:
		t.stop(path, fmt.Sprintf("more than %d folders, so the rest is not read; name the folder that holds the manifests", maxFolders))
		return
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		t.fail(path, "the folder can't be read: "+unreadable(err))
		return
	}
	t.folders = append(t.folders, path)
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), ".") {
			t.entry(filepath.Join(path, entry.Name()), filepath.Join(target, entry.Name()), entry, depth)
		}
	}
}

func (t *walker) entry(path, target string, entry fs.DirEntry, depth int) {
	link := entry.Type()&fs.ModeSymlink != 0
	if entry.IsDir() {
		t.folder(path, target, depth+1)
		return
	}
	if !link && !isManifest(path) {
		return
	}
	info, err := os.Stat(path)
	if link && err == nil {
		if behind, ok := realPath(path); ok {
			target = behind
		}
	}
	switch {
	case err != nil && isManifest(path):
		t.fail(path, "can't be read: "+unreadable(err))
	case err != nil:
	case info.IsDir():
		t.folder(path, target, depth+1)
	case !isManifest(path):
	case !info.Mode().IsRegular():
		t.fail(path, "not a regular file, so it is not read; remove it")
	case len(t.files) >= maxFiles:
		t.stop(path, fmt.Sprintf("more than %d files, so the rest is not read; name the folder that holds the manifests", maxFiles))
	case t.first(target):
		t.files = append(t.files, treeFile{path: path, info: info})
	}
}

func (t *walker) stop(path, message string) {
	if !t.full {
		t.full = true
		t.fail(path, message)
	}
}

func isManifest(path string) bool {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// unreadable words a file system's error without the path, which stands before it.
func unreadable(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return err.Error()
}

// same reports whether two walks found the same files in the same state, going by
// their metadata.
func (t tree) same(o tree) bool {
	return t.incomplete == o.incomplete && slices.Equal(t.problems, o.problems) &&
		slices.EqualFunc(t.files, o.files, func(a, b treeFile) bool {
			return a.path == b.path && sameState(a.info, b.info)
		})
}

func sameState(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
