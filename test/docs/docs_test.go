// Package docs holds the documentation to the code: every manifest in it loads, every
// command has the flags it is shown with, every link leads somewhere, and what is
// marked for it is run with the real binary and prints what the page says.
//
// Marks are HTML comments right above a block (see extract_test.go):
//
//	<!-- test -->                        run it; it must succeed
//	<!-- test exit=2 -->                 run it; it must end with that code
//	<!-- test background port=8080 -->   start it, in place of what held the port before
//	<!-- output -->                      lines that the last command printed, in this order
//	<!-- file NAME -->                   write the block to this file
//
// Blocks of a page run in its order, in a folder of their own that is also $HOME.
package docs

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/doorstep-dev/doorstep/internal/manifest"
	"github.com/doorstep-dev/doorstep/test/harness"
)

// root is the repository's, seen from this package.
const root = "../.."

// binary is the doorstep that all tests here run.
var binary string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "doorstep-docs")
		if err != nil {
			panic(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		if binary, err = harness.Build(context.Background(), dir); err != nil {
			panic(err)
		}
		return m.Run()
	}())
}

// pages are the README and all pages of docs but those that are generated or records.
func pages(t *testing.T) map[string]page {
	t.Helper()
	out := map[string]page{}
	add := func(path string) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = readPage(name, string(text))
	}
	if _, err := os.Stat(filepath.Join(root, "README.md")); err == nil {
		add(filepath.Join(root, "README.md"))
	}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "decisions" || d.Name() == "api"):
			return filepath.SkipDir
		case filepath.Ext(path) == ".md":
			add(path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 8 {
		t.Fatalf("only %d pages were found", len(out))
	}
	return out
}

// Every manifest is taken as it is by the loader that standalone uses.
func TestManifestsLoad(t *testing.T) {
	seen := 0
	for name, p := range pages(t) {
		for _, b := range p.blocks {
			if b.language != "yaml" || !strings.Contains(b.text, "doorstep.dev/") {
				continue
			}
			seen++
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "doc.yaml"), []byte(b.text), 0o600); err != nil {
				t.Fatal(err)
			}
			loader, err := manifest.NewLoader(dir)
			if err != nil {
				t.Fatal(err)
			}
			s := loader.Load()
			for _, problem := range slices.Concat(s.Problems, s.Notes) {
				t.Errorf("%s:%d: the manifest is not taken: %s", name, b.line, problem)
			}
			if len(s.Objects.Endpoints)+len(s.Objects.RetryPolicies)+len(s.Objects.Pools) == 0 {
				t.Errorf("%s:%d: there is no object of Doorstep's in the manifest", name, b.line)
			}
		}
	}
	if seen < 4 {
		t.Errorf("only %d manifests were found", seen)
	}
}

// codeSpan is what a page sets as code within its text.
var codeSpan = regexp.MustCompile("`[^`\n]+`")

// Every field of a kind's spec is named, as code or in an example, on the kind's page.
func TestFieldsAreDocumented(t *testing.T) {
	all := pages(t)
	for file, kind := range map[string]string{
		"doorstep.dev_webhookendpoints.yaml": "webhookendpoint", "doorstep.dev_retrypolicies.yaml": "retrypolicy", "doorstep.dev_deliverypools.yaml": "deliverypool",
	} {
		text, err := os.ReadFile(filepath.Join(root, "config/crd", file))
		if err != nil {
			t.Fatal(err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(text, &crd); err != nil {
			t.Fatal(err)
		}
		p, ok := all[filepath.Join("docs/spec", kind+".md")]
		if !ok {
			t.Fatalf("%s has no page", kind)
		}
		said := strings.Join(codeSpan.FindAllString(p.prose, -1), "\n")
		for _, b := range p.blocks {
			said += "\n" + b.text
		}
		for _, f := range fieldNames(crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]) {
			if !regexp.MustCompile(`\b` + f + `\b`).MatchString(said) {
				t.Errorf("docs/spec/%s.md does not name the field %s", kind, f)
			}
		}
	}
}

// fieldNames are those of an object and of all below it.
func fieldNames(s apiextensionsv1.JSONSchemaProps) []string {
	var names []string
	for name, below := range s.Properties {
		switch name {
		case "defaultRetryPolicy": // its fields are on the page of RetryPolicy
			below = apiextensionsv1.JSONSchemaProps{}
		case "resources", "tolerations", "topologySpreadConstraints", "selector": // Kubernetes's own
			below = apiextensionsv1.JSONSchemaProps{}
		}
		names = append(append(names, name), fieldNames(below)...)
	}
	if s.Items != nil && s.Items.Schema != nil {
		names = append(names, fieldNames(*s.Items.Schema)...)
	}
	return names
}

// command finds a call of doorstep: its subcommands and what follows up to the end of
// the command.
var command = regexp.MustCompile(`(?:^|[\s(;|` + "`" + `])(?:bin/)?doorstep ((?:get|endpoint|apikey) [a-z][a-z-]*|[a-z]+)([^|;&` + "`" + `\n]*)`)

var flag = regexp.MustCompile(`(?:^|\s)(--[a-z][a-z-]*|-[a-z])\b`)

// Every flag that a page shows with a command is one of that command's.
func TestFlagsExist(t *testing.T) {
	help := map[string]string{}
	seen := 0
	for name, p := range pages(t) {
		for _, m := range command.FindAllStringSubmatch(strings.ReplaceAll(p.text, "\\\n", " "), -1) {
			sub := m[1]
			if !strings.Contains(m[0], "`") && !strings.Contains(p.code, strings.TrimSpace(m[0])) {
				continue // prose
			}
			if help[sub] == "" {
				out, err := exec.Command(binary, append(strings.Fields(sub), "--help")...).CombinedOutput()
				// For an unknown subcommand the help of the command above it is given.
				if err != nil || !strings.Contains(string(out), "\n  doorstep "+sub) {
					t.Errorf("%s: there is no command doorstep %s", name, sub)
					continue
				}
				help[sub] = string(out)
			}
			for _, f := range flag.FindAllStringSubmatch(m[2], -1) {
				seen++
				if !regexp.MustCompile(`(?m)(^|[\s,])` + f[1] + `\b`).MatchString(help[sub]) {
					t.Errorf("%s: doorstep %s has no flag %s", name, sub, f[1])
				}
			}
		}
	}
	if seen < 30 {
		t.Errorf("only %d flags were found", seen)
	}
}

var link = regexp.MustCompile(`\]\(([^)#\s]*)(#[^)\s]*)?\)`)

// Every link within the repository leads to a file, and to a heading of it.
func TestLinksLeadSomewhere(t *testing.T) {
	all := pages(t)
	for name, p := range all {
		for _, m := range link.FindAllStringSubmatch(p.prose, -1) {
			target, anchor := m[1], strings.TrimPrefix(m[2], "#")
			if strings.Contains(target, "://") {
				continue
			}
			path := name
			if target != "" {
				path = filepath.Join(filepath.Dir(name), target)
			}
			if _, err := os.Stat(filepath.Join(root, path)); err != nil {
				t.Errorf("%s: the link %s leads nowhere", name, m[0])
				continue
			}
			if to, ok := all[path]; ok && anchor != "" && !slices.Contains(to.anchors, anchor) {
				t.Errorf("%s: %s has no heading for the link %s", name, path, m[0])
			}
		}
	}
}

// Every marked block does what its page says.
func TestPagesRun(t *testing.T) {
	ran := 0
	for name, p := range pages(t) {
		if !p.runs() {
			continue
		}
		ran++
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newRunner(t, p).run()
		})
	}
	if ran < 3 {
		t.Errorf("only %d pages with marked blocks were found", ran)
	}
}
