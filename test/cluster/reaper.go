package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/doorstep-dev/doorstep/test/harness"
)

// reaper ends etcd and the API server when the test program is gone, however it ended: go test kills a program that takes
// too long, and they would live on. It is a shell that waits for its standard input to close, then kills the processes
// that noted their ids in the folder and removes the folder.
type reaper struct {
	dir     string
	process *harness.Process
}

const reaperScript = `cat >/dev/null
for file in "$1"/*.pid; do
  [ -f "$file" ] && kill -9 "$(cat "$file")" 2>/dev/null
done
rm -rf "$1"`

func newReaper(dir string) (*reaper, error) {
	p, err := harness.Start(harness.Command{Name: "the reaper of a control plane", Path: "/bin/sh", Args: []string{"-c", reaperScript, "reaper", dir}})
	if err != nil {
		return nil, err
	}
	return &reaper{dir: dir, process: p}, nil
}

// wrap returns a program that does what the given one does, and notes its process id first.
func (r *reaper) wrap(program string) (string, error) {
	name := filepath.Base(program)
	path := filepath.Join(r.dir, name)
	text := fmt.Sprintf("#!/bin/sh\n[ \"$1\" = --help ] || echo $$ >'%s.pid'\nexec '%s' \"$@\"\n", path, program)
	return path, os.WriteFile(path, []byte(text), 0o700)
}

// pid is the process id that a wrapped program noted last.
func (r *reaper) pid(name string) (int, error) {
	text, err := os.ReadFile(filepath.Join(r.dir, name+".pid"))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// reap ends what is left at once.
func (r *reaper) reap() {
	r.process.CloseInput()
	if _, err := r.process.Wait(10 * time.Second); err != nil {
		r.process.Kill()
	}
}
