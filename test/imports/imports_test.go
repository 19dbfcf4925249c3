// Package imports holds the rule of which packages may know of Kubernetes, and checks it on the whole import graph.
package imports

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const module = "github.com/doorstep-dev/doorstep"

// dataPlane are the packages that know nothing of Kubernetes, each with everything below it. A package that does not
// exist yet is held to the rule from its first file on.
var dataPlane = []string{"queue", "dispatch", "deliver", "sign", "retry", "health", "event", "plan", "filter"}

// forbidden reports whether the data plane must not depend on the package.
func forbidden(pkg string) bool {
	for _, root := range []string{"k8s.io", "sigs.k8s.io", module + "/api"} {
		if pkg == root || strings.HasPrefix(pkg, root+"/") {
			return true
		}
	}
	return false
}

// TestDataPlaneKnowsNoKubernetes reads the dependencies of each data-plane package, those of its tests included, and fails
// on one of Kubernetes, whoever brings it in.
func TestDataPlaneKnowsNoKubernetes(t *testing.T) {
	noteSources(t, "internal")
	found := 0
	for _, name := range dataPlane {
		t.Run(name, func(t *testing.T) {
			root := module + "/internal/" + name
			for _, pkg := range list(t, "list", root+"/...") {
				found++
				for _, dep := range list(t, "list", "-deps", "-test", pkg) {
					// Test variants are listed as "path [path.test]".
					dep, _, _ = strings.Cut(dep, " ")
					if forbidden(dep) {
						t.Errorf("%s depends on %s", pkg, dep)
					}
				}
			}
		})
	}
	if found < 4 {
		t.Errorf("only %d data-plane packages were found; is the list of names still right?", found)
	}
}

// A rule that forbids nothing would pass for ever: the API packages must break it.
func TestRuleCanFail(t *testing.T) {
	for _, dep := range list(t, "list", "-deps", module+"/api/v1alpha1") {
		if forbidden(dep) {
			return
		}
	}
	t.Error("api/v1alpha1 passes the rule of the data plane; forbidden() finds nothing")
}

// The client package is what others import: it needs nothing of internal/, which they can't have, and nothing but the
// standard library.
func TestClientStandsAlone(t *testing.T) {
	noteSources(t, "client")
	found := 0
	for _, dep := range list(t, "list", "-deps", module+"/client") {
		first, _, _ := strings.Cut(dep, "/")
		switch {
		case dep == module+"/client":
			found++
		case strings.Contains(first, "."): // the standard library has no dots there
			t.Errorf("client depends on %s", dep)
		}
	}
	if found == 0 {
		t.Error("there is no package client")
	}
}

// noteSources reads every source file below a folder, since go test would call an earlier result good for as long as the
// files this process itself has read are the same.
func noteSources(t *testing.T, folder string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join("../..", folder), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" {
			return err
		}
		_, err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// list runs the go command and returns its output's lines; a pattern that matches no package gives none.
func list(t *testing.T, args ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == '\n' })
}
