package pebble

import (
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// markerFS makes a marker durable only after what it points to. Pebble creates its
// manifest, then the marker that names it, and syncs the folder once after both: where
// a file system doesn't keep the order of a folder's entries over a crash, as POSIX
// allows, the marker could survive alone and the store would not open.
type markerFS struct{ vfs.FS }

// Create syncs the folder before it creates a marker.
func (m markerFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasPrefix(m.PathBase(name), markerPrefix) {
		if err := syncFolder(m.FS, m.PathDir(name)); err != nil {
			return nil, err
		}
	}
	return m.FS.Create(name, c)
}

// Unwrap gives pebble the file system underneath.
func (m markerFS) Unwrap() vfs.FS { return m.FS }

// markerPrefix begins the names of pebble's marker files; manifestMarker those of the
// file by which pebble knows its own folder: where it is missing pebble would begin
// anew over whatever is there.
const (
	markerPrefix   = "marker."
	manifestMarker = markerPrefix + "manifest."
)
