package cluster

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Manifest is YAML as somebody reads it, and applies it.
type Manifest struct {
	// Name is where it is from.
	Name, Text string
	Objects    []*unstructured.Unstructured
}

// Has reports whether an object of the kind is in it.
func (m Manifest) Has(kind string) bool {
	for _, o := range m.Objects {
		if o.GetKind() == kind {
			return true
		}
	}
	return false
}

// NewManifest reads YAML of that name.
func NewManifest(t testing.TB, name, text string) Manifest {
	t.Helper()
	m := Manifest{Name: name, Text: text}
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		o := &unstructured.Unstructured{}
		err := decoder.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return m
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if o.Object != nil {
			m.Objects = append(m.Objects, o)
		}
	}
}

var fence = regexp.MustCompile("(?ms)^([ ]*)```yaml\n(.*?)\n[ ]*```$")

// Documented are the YAML blocks of README.md and docs with objects of Doorstep, but those of generated pages and of
// records.
func Documented(t testing.TB) []Manifest {
	t.Helper()
	root := rootOf(t)
	var out []Manifest
	add := func(path string) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range fence.FindAllSubmatchIndex(text, -1) {
			indent, block := string(text[at[2]:at[3]]), string(text[at[4]:at[5]])
			if !strings.Contains(block, "doorstep.dev/") {
				continue
			}
			block = strings.ReplaceAll("\n"+block, "\n"+indent, "\n") + "\n"
			name := fmt.Sprintf("%s:%d", strings.TrimPrefix(path, root+"/"), strings.Count(string(text[:at[0]]), "\n")+1)
			out = append(out, NewManifest(t, name, block))
		}
	}
	add(filepath.Join(root, "README.md"))
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "decisions" || d.Name() == "api"):
			return fs.SkipDir
		case filepath.Ext(path) == ".md":
			add(path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Samples are the files of config/samples that go into a namespace of their reader's choice as one manifest, and each
// other one for itself.
func Samples(t testing.TB) []Manifest {
	t.Helper()
	root := rootOf(t)
	files, err := filepath.Glob(filepath.Join(root, "config", "samples", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var out []Manifest
	var together string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m := NewManifest(t, strings.TrimPrefix(file, root+"/"), string(text))
		switch {
		case filepath.Base(file) == "kustomization.yaml":
		case m.Has("DeliveryPool"):
			out = append(out, m)
		default:
			together += string(text) + "\n---\n"
		}
	}
	return append(out, NewManifest(t, "config/samples", together))
}

func rootOf(t testing.TB) string {
	t.Helper()
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	return root
}
