package manifests

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

// root is the repository's, seen from this package.
const root = "../.."

// manifest is YAML as somebody reads it, and applies it.
type manifest struct {
	// name is where it is from.
	name, text string
	objects    []*unstructured.Unstructured
}

// has reports whether an object of the kind is in it.
func (m manifest) has(kind string) bool {
	for _, o := range m.objects {
		if o.GetKind() == kind {
			return true
		}
	}
	return false
}

func newManifest(t *testing.T, name, text string) manifest {
	t.Helper()
	m := manifest{name: name, text: text}
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
			m.objects = append(m.objects, o)
		}
	}
}

var fence = regexp.MustCompile("(?ms)^([ ]*)```yaml\n(.*?)\n[ ]*```$")

// documented are the YAML blocks of README.md and docs with objects of Doorstep, but those of generated pages and of
// records.
func documented(t *testing.T) []manifest {
	t.Helper()
	var out []manifest
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
			out = append(out, newManifest(t, name, block))
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

// samples are the files of config/samples that go into a namespace of their reader's choice as one manifest, and each
// other one for itself.
func samples(t *testing.T) []manifest {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "config", "samples", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var out []manifest
	var together string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m := newManifest(t, strings.TrimPrefix(file, root+"/"), string(text))
		switch {
		case filepath.Base(file) == "kustomization.yaml":
		case m.has("DeliveryPool"):
			out = append(out, m)
		default:
			together += string(text) + "\n---\n"
		}
	}
	return append(out, newManifest(t, "config/samples", together))
}

// all are the manifests to try; few of them would mean that they are no longer found.
func all(t *testing.T) []manifest {
	t.Helper()
	out := append(samples(t), documented(t)...)
	kinds := map[string]int{}
	for _, m := range out {
		for _, o := range m.objects {
			kinds[o.GetKind()]++
		}
	}
	if len(out) < 12 || kinds["WebhookEndpoint"] < 10 || kinds["DeliveryPool"] < 4 || kinds["RetryPolicy"] < 4 {
		t.Fatalf("only %d manifests were found, with %v", len(out), kinds)
	}
	return out
}
