package manifest

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/doorstep-dev/doorstep/config/crd"
)

// A regular expression is no message: each that a spec is held to has words.
func TestPatternsHaveWords(t *testing.T) {
	files, err := crd.Files.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, f := range files {
		text, err := crd.Files.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		var d apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(text, &d); err != nil {
			t.Fatal(err)
		}
		patterns(d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"], seen)
	}
	for p := range seen {
		if patternWords[p] == "" {
			t.Errorf("%s has no words", p)
		}
	}
	for p := range patternWords {
		if !seen[p] {
			t.Errorf("no field has the pattern %s any more", p)
		}
	}
}

// patterns collects those of a schema and of all below it.
func patterns(s apiextensionsv1.JSONSchemaProps, seen map[string]bool) {
	if s.Pattern != "" {
		seen[s.Pattern] = true
	}
	for _, below := range s.Properties {
		patterns(below, seen)
	}
	if s.Items != nil && s.Items.Schema != nil {
		patterns(*s.Items.Schema, seen)
	}
}
