package manifest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// fault is something an API server would refuse an object for.
type fault struct {
	field   string
	message string
}

// schema holds what validates one kind of custom resource.
type schema struct {
	structural *structuralschema.Structural
	openapi    validation.SchemaValidator
	rules      *cel.Validator
}

// loadSchemas compiles the CRDs of a file system, by kind. They are part of the
// binary, so an error is a broken build.
func loadSchemas(files fs.FS) (map[string]*schema, error) {
	names, err := fs.Glob(files, "*.yaml")
	if err != nil {
		return nil, fmt.Errorf("list the CRDs: %w", err)
	}
	out := make(map[string]*schema, len(names))
	for _, name := range names {
		b, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, fmt.Errorf("read CRD %s: %w", name, err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(b, &crd); err != nil {
			return nil, fmt.Errorf("read CRD %s: %w", name, err)
		}
		s, err := compileSchema(&crd)
		if err != nil {
			return nil, fmt.Errorf("compile CRD %s: %w", name, err)
		}
		out[crd.Spec.Names.Kind] = s
	}
	return out, nil
}

func compileSchema(crd *apiextensionsv1.CustomResourceDefinition) (*schema, error) {
	if len(crd.Spec.Versions) != 1 || crd.Spec.Versions[0].Schema == nil {
		return nil, errors.New("it must have one version with a schema")
	}
	var props apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, &props, nil); err != nil {
		return nil, err
	}
	structural, err := structuralschema.NewStructural(&props)
	if err != nil {
		return nil, err
	}
	openapi, _, err := validation.NewSchemaValidator(&props)
	if err != nil {
		return nil, err
	}
	return &schema{structural: structural, openapi: openapi, rules: cel.NewValidator(structural, true, celconfig.PerCallLimit)}, nil
}

// validate does with an object what an API server does on a strict create, or, if
// old is not nil, on an update of old: unknown fields, defaults, metadata, schema,
// lists and CEL rules. obj comes out pruned and defaulted. Its status, which no
// user can set, is dropped.
func (s *schema) validate(obj, old map[string]any) []fault {
	delete(obj, "status")
	faults := metaFaults(obj, s.structural)
	for _, path := range pruning.PruneWithOptions(obj, s.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		faults = append(faults, unknownField(path))
	}
	defaulting.Default(obj, s.structural)
	defaulting.PruneNonNullableNullsWithoutDefaults(obj, s.structural)

	errs := validation.ValidateCustomResource(nil, obj, s.openapi)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s.structural, obj)...)
	if s.rules != nil && !blocking(errs) && len(faults) == 0 {
		var former any
		if old != nil {
			former = old
		}
		found, _ := s.rules.Validate(context.Background(), nil, s.structural, obj, former, celconfig.RuntimeCELCostBudget)
		errs = append(errs, found...)
	}
	return append(faults, toFaults(errs)...)
}

// metaFaults checks metadata: its types, unknown fields, names, labels.
func metaFaults(obj map[string]any, s *structuralschema.Structural) []fault {
	err, unknown := objectmeta.CoerceWithOptions(nil, obj, s, true, objectmeta.CoerceOptions{ReturnUnknownFieldPaths: true})
	if err != nil {
		return []fault{{coercedField(obj), "has a value of another type or form than it takes; put quotes around numbers and booleans that are texts"}}
	}
	var faults []fault
	for _, path := range unknown {
		faults = append(faults, unknownField(path))
	}
	errs := apivalidation.ValidateObjectMetaAccessor(&unstructured.Unstructured{Object: obj}, true, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	for _, err := range errs {
		if strings.HasPrefix(err.Field, "metadata.ownerReferences") { // some quote names of owners
			err.Detail = "is not valid; remove it, since no object owns one that comes from a file"
		}
	}
	return append(faults, toFaults(errs)...)
}

// coercedField finds the field of metadata that is not of its type. The library's
// own error quotes what it could not read.
func coercedField(obj map[string]any) string {
	meta, ok := obj["metadata"].(map[string]any)
	if !ok {
		return "metadata"
	}
	for _, key := range slices.Sorted(maps.Keys(meta)) {
		alone := map[string]any{"metadata": map[string]any{key: meta[key]}}
		if err, _ := objectmeta.CoerceWithOptions(nil, alone, nil, true, objectmeta.CoerceOptions{}); err != nil {
			return "metadata." + key
		}
	}
	return "metadata"
}

func unknownField(path string) fault {
	return fault{field: path, message: "unknown field; remove it, or check its spelling and its place"}
}

// blocking reports whether CEL rules can't run on the object, as the API server
// decides it (registry/customresource/strategy.go).
func blocking(errs field.ErrorList) bool {
	for _, err := range errs {
		switch err.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
			return true
		}
	}
	return false
}

var formatError = regexp.MustCompile(`^Checked value must be (of type [a-z0-9 ()]+) in (\S+)$`)

// patternWords are the patterns of the kinds in words.
var patternWords = map[string]string{
	`^([0-9]{1,5}(h|m|s|ms)){1,4}$`:   "must be a duration such as 15s, 1h30m or 250ms: numbers of up to five digits, each with h, m, s or ms",
	`^[-._a-zA-Z0-9]+$`:               "must be of letters, digits, dots, dashes and underscores",
	`^[a-z0-9]+$`:                     "must be of lower-case letters and digits",
	`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`: "must be of lower-case letters, digits and dashes, with no dash at either end",
	`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`: "must be a name of lower-case letters, digits, dashes and dots, as objects have",
	`^(id|type|source|subject|time|attributes\.[a-z0-9]{1,64})$`:        "must be id, type, source, subject, time, or attributes. and the name of an attribute (lower-case letters and digits)",
	`^[!#-\[\]-~]+$`: "must be of printable ASCII without spaces, double quotes and backslashes",
	`^[A-Za-z0-9_]([-A-Za-z0-9_.]*[A-Za-z0-9_])?$`: "must be of letters, digits, dashes, dots and underscores, with no dash or dot at either end",
	`^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$`: "must be a size such as 512Mi or 20Gi",
}

// typeError is how the library says that a value is of another type.
var typeError = regexp.MustCompile(`^must be of type ([a-z]+): "([a-z]+)"$`)

// typeNames are JSON's types in the words of somebody who writes YAML.
var typeNames = map[string]string{
	"array": "a list", "object": "a mapping", "string": "a text", "integer": "a whole number", "number": "a number",
	"boolean": "true or false", "null": "nothing",
}

// typeWords says what a value must be, what it is, and how the one is written.
func typeWords(want, got string) string {
	if typeNames[want] == "" || typeNames[got] == "" {
		return "must be of type " + want + ", not " + got
	}
	words := "must be " + typeNames[want] + ", not " + typeNames[got]
	switch {
	case want == "array":
		words += "; begin each entry with a dash, or put the entries in [ ]"
	case want == "object":
		words += "; give its fields by name"
	case want == "string" && (got == "integer" || got == "number" || got == "boolean"):
		words += "; put quotes around it"
	}
	return words
}

func toFaults(errs field.ErrorList) []fault {
	out := make([]fault, 0, len(errs))
	seen := make(map[fault]bool, len(errs))
	for _, err := range errs {
		f := fault{field: err.Field, message: words(err)}
		if f.field == "<nil>" {
			f.field = ""
		}
		// The check of a number's format has no field but in its text.
		if m := formatError.FindStringSubmatch(f.message); m != nil && f.field == "" {
			f.field, f.message = m[2], "must be "+m[1]
		}
		if !seen[f] {
			seen[f] = true
			out = append(out, f)
		}
	}
	return out
}

// words gives an API error without the value it speaks of, which may be a URL with
// a token. Numbers, and the entries of sets and keys of maps, are shown.
func words(err *field.Error) string {
	detail := strings.TrimPrefix(err.Detail, err.Field+" in body ")
	shown := ""
	switch v := err.BadValue.(type) {
	case int, int32, int64, float64, bool:
		shown = fmt.Sprintf(" (it is %v)", v)
	}
	switch err.Type {
	case field.ErrorTypeRequired:
		if detail == "" || detail == "Required value" {
			return "required, but not set"
		}
		return detail
	case field.ErrorTypeDuplicate:
		return "stands twice in a list that takes each entry once"
	case field.ErrorTypeTypeInvalid, field.ErrorTypeInvalid:
		if pattern, ok := strings.CutPrefix(detail, "should match '"); ok {
			if words := patternWords[strings.TrimSuffix(pattern, "'")]; words != "" {
				return words
			}
		}
		if m := typeError.FindStringSubmatch(detail); m != nil {
			return typeWords(m[1], m[2])
		}
		if detail == "" {
			return "invalid value" + shown
		}
		return detail + shown
	case field.ErrorTypeNotSupported:
		return "unsupported value: " + detail
	}
	if detail == "" {
		return strings.ToLower(err.Type.String()) + shown
	}
	return detail + shown
}
