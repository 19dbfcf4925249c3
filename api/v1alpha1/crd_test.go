package v1alpha1_test

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/doorstep-dev/doorstep/config/crd"
)

// admission judges objects of one kind as an API server would: unknown fields, schema, list types and CEL rules.
type admission struct {
	structural *schema.Structural
	schema     validation.SchemaValidator
	rules      *cel.Validator
}

// loadCRD reads one CustomResourceDefinition with the API server's defaults applied.
func loadCRD(t *testing.T, file string) *apiextensions.CustomResourceDefinition {
	t.Helper()
	text, err := fs.ReadFile(crd.Files, file)
	if err != nil {
		t.Fatal(err)
	}
	var v1 apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(text, &v1); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	apiextensionsv1.SetDefaults_CustomResourceDefinition(&v1)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&v1.Spec)
	// The API server fills this in from the first version it stores.
	v1.Status.StoredVersions = []string{v1.Spec.Versions[0].Name}
	var internal apiextensions.CustomResourceDefinition
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&v1, &internal, nil); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return &internal
}

// admissions keeps the compiled schemas, by kind.
var admissions sync.Map

func admissionOf(t *testing.T, kind string) *admission {
	t.Helper()
	if a, ok := admissions.Load(kind); ok {
		return a.(*admission)
	}
	files := map[string]string{
		"WebhookEndpoint": "doorstep.dev_webhookendpoints.yaml",
		"RetryPolicy":     "doorstep.dev_retrypolicies.yaml",
		"DeliveryPool":    "doorstep.dev_deliverypools.yaml",
	}
	definition := loadCRD(t, files[kind])
	props := definition.Spec.Validation
	if props == nil {
		props = definition.Spec.Versions[0].Schema
	}
	structural, err := schema.NewStructural(props.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	schemaValidator, _, err := validation.NewSchemaValidator(props.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	a := &admission{structural, schemaValidator, cel.NewValidator(structural, true, celconfig.PerCallLimit)}
	admissions.Store(kind, a)
	return a
}

// judge returns what is wrong with the object, one text a fault; old is nil on creation. It fills in the CRD's defaults.
func (a *admission) judge(obj, old map[string]any) []string {
	unknown := pruning.PruneWithOptions(obj, a.structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	var faults []string
	for _, path := range unknown {
		faults = append(faults, fmt.Sprintf("%s: unknown field", path))
	}
	defaulting.Default(obj, a.structural)

	errs := validation.ValidateCustomResource(nil, obj, a.schema)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, a.structural, obj)...)
	if !slices.ContainsFunc(errs, blocksRules) {
		var oldObj any
		if old != nil {
			oldObj = old
		}
		ruleErrs, _ := a.rules.Validate(context.Background(), nil, a.structural, obj, oldObj, celconfig.RuntimeCELCostBudget)
		errs = append(errs, ruleErrs...)
	}
	for _, err := range errs {
		faults = append(faults, faultText(err))
	}
	return faults
}

// blocksRules reports whether the API server checks no CEL rules after err; the list is that of its customresource strategy.
func blocksRules(err *field.Error) bool {
	switch err.Type {
	case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
		return true
	}
	return false
}

func faultText(err *field.Error) string {
	if err.Type == field.ErrorTypeRequired || err.Type == field.ErrorTypeDuplicate {
		return fmt.Sprintf("%s: %s", err.Field, err.Type)
	}
	return fmt.Sprintf("%s: %s", err.Field, err.Detail)
}

// object parses one object of the kind, its spec given as YAML.
func object(t *testing.T, kind, name, spec string) map[string]any {
	t.Helper()
	text := fmt.Sprintf("apiVersion: doorstep.dev/v1alpha1\nkind: %s\nmetadata: {name: %s, namespace: shop}\nspec:\n", kind, name)
	for line := range strings.SplitSeq(spec, "\n") {
		text += "  " + line + "\n"
	}
	asJSON, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	// The API server's own decoder makes whole numbers int64, which the CEL rules ask for.
	var obj map[string]any
	if err := json.Unmarshal(asJSON, &obj); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	if obj["spec"] == nil {
		obj["spec"] = map[string]any{}
	}
	return obj
}

// Every CRD must be one the API server takes: structural, its rules compile, and their estimated cost is within bounds.
func TestCRDsAreAcceptable(t *testing.T) {
	entries, err := fs.ReadDir(crd.Files, ".")
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 3 {
		t.Fatalf("%d CRD files are embedded, want 3", len(entries))
	}
	for _, entry := range entries {
		t.Run(entry.Name(), func(t *testing.T) {
			definition := loadCRD(t, entry.Name())
			for _, err := range crdvalidation.ValidateCustomResourceDefinition(t.Context(), definition) {
				t.Error(err)
			}
			info, err := entry.Info()
			if err != nil {
				t.Fatal(err)
			}
			if info.Size() >= 200<<10 {
				t.Errorf("%d bytes, which client-side apply can't annotate; the limit is 200 KiB", info.Size())
			}
			if got := definition.Spec.Names.Categories; len(got) != 1 || got[0] != "doorstep" {
				t.Errorf("categories %v, want doorstep alone: kubectl delete all --all must not take these objects", got)
			}
		})
	}
}

// Defaults live in code: a minimal object is stored as written, so that GitOps sees no difference (case CR167). Only
// status starts at -1, so that an object nobody has looked at yet does not read as done.
func TestDefaultsNeverEnterSpec(t *testing.T) {
	for kind, spec := range map[string]string{
		"WebhookEndpoint": "url: https://hooks.example.com/orders",
		"RetryPolicy":     "{}",
		"DeliveryPool":    "{}",
	} {
		t.Run(kind, func(t *testing.T) {
			a := admissionOf(t, kind)
			obj := object(t, kind, "orders", spec)
			want := fmt.Sprint(obj["spec"])
			if faults := a.judge(obj, nil); faults != nil {
				t.Fatalf("refused: %q", faults)
			}
			if got := fmt.Sprint(obj["spec"]); got != want {
				t.Errorf("spec became %s, want it as written: %s", got, want)
			}
			if got := fmt.Sprint(obj["status"]); got != "map[observedGeneration:-1]" {
				t.Errorf("status is %s, want observedGeneration -1", got)
			}
			obj["status"] = map[string]any{"conditions": []any{}}
			if faults := a.judge(obj, nil); faults != nil {
				t.Fatalf("refused with a status that another manager wrote first: %q", faults)
			}
			if got := fmt.Sprint(obj["status"]); got != "map[conditions:[] observedGeneration:-1]" {
				t.Errorf("status is %s after another manager wrote first, want observedGeneration -1", got)
			}
		})
	}
}
