package v1alpha1_test

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/doorstep-dev/doorstep/config/crd"
	"github.com/doorstep-dev/doorstep/test/cluster"
)

// TestMain runs the tests, with one API server for all, and then fails if a rule of the CRDs was broken by no row of
// theirs. A part of the tests (-run, -skip) says nothing about that.
func TestMain(m *testing.M) {
	code := cluster.Main(m.Run)
	if code == 0 && flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.skip").Value.String() == "" &&
		flag.Lookup("test.list").Value.String() == "" {
		code = reportUnbroken()
	}
	os.Exit(code)
}

// hits are the faults of all rows so far, each "kind path: message" with [] for any index or key.
var hits sync.Map

var index = regexp.MustCompile(`\[[^]]*\]`)

func noteHits(kind string, faults []string) {
	for _, fault := range faults {
		path, text, _ := strings.Cut(fault, ": ")
		hits.Store(kind+" "+index.ReplaceAllString(path, "[]")+": "+text, true)
	}
}

// unbreakable are rules that no object can break yet, and why.
var unbreakable = map[string]string{
	"DeliveryPool spec.store.type: store.type can't be changed, since the queue would be left behind; make a new DeliveryPool instead": "Embedded is the only type",
}

func reportUnbroken() int {
	rules, err := allRules()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := 0
	for _, rule := range rules {
		_, broken := hits.Load(rule)
		why, exempt := unbreakable[rule]
		switch {
		case broken && exempt:
			fmt.Fprintf(os.Stderr, "a row breaks this rule of the CRDs, which was held to be unbreakable (%s); take it off that list: %s\n", why, rule)
			code = 1
		case !broken && !exempt:
			fmt.Fprintf(os.Stderr, "no row breaks this rule of the CRDs; add one to a table of *_rules_test.go: %s\n", rule)
			code = 1
		}
	}
	return code
}

// allRules lists the CEL rules of all CRDs as noteHits writes them.
func allRules() ([]string, error) {
	files, err := fs.Glob(crd.Files, "doorstep.dev_*.yaml")
	if err != nil {
		return nil, err
	}
	var rules []string
	for _, file := range files {
		text, err := fs.ReadFile(crd.Files, file)
		if err != nil {
			return nil, err
		}
		var definition apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(text, &definition); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, version := range definition.Spec.Versions {
			walkRules(*version.Schema.OpenAPIV3Schema, "", func(path, message string) {
				if path == "" {
					path = "<nil>"
				}
				rules = append(rules, definition.Spec.Names.Kind+" "+path+": "+message)
			})
		}
	}
	if len(rules) < 50 {
		return nil, fmt.Errorf("only %d CEL rules were found in the CRDs; is the walk through them still right?", len(rules))
	}
	slices.Sort(rules)
	return slices.Compact(rules), nil
}

// walkRules calls found with each rule below a schema: where it is, and its message.
func walkRules(schema apiextensionsv1.JSONSchemaProps, path string, found func(path, message string)) {
	for _, rule := range schema.XValidations {
		found(path, rule.Message)
	}
	for name, property := range schema.Properties {
		walkRules(property, strings.TrimPrefix(path+"."+name, "."), found)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		walkRules(*schema.Items.Schema, path+"[]", found)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		walkRules(*schema.AdditionalProperties.Schema, path+"[]", found)
	}
}
