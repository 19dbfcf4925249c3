package ingest_test

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/doorstep-dev/doorstep/internal/ingest"
)

// description is /openapi.json as this server gives it, ready to check answers by.
type description struct {
	doc     map[string]any
	schemas *jsonschema.Compiler
}

// theDescription is read once for all tests of the package: the harness holds every answer to it.
var theDescription = sync.OnceValues(readDescription)

func readDescription() (*description, error) {
	w := httptest.NewRecorder()
	ingest.New(ingest.Options{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/openapi.json", nil))
	doc, err := jsonschema.UnmarshalJSON(w.Body)
	if err != nil {
		return nil, err
	}
	d := &description{doc: doc.(map[string]any), schemas: jsonschema.NewCompiler()}
	// What a producer may send is open; what the server answers is described to the last member. (It is open for those
	// who read it, so that members can be added, but not for those who write it.)
	for name, schema := range d.at("components", "schemas") {
		if name != "PlainEvent" && name != "CloudEvent" {
			closeObjects(schema)
		}
	}
	d.schemas.AssertFormat()
	d.schemas.AssertContent()
	return d, d.schemas.AddResource("openapi.json", doc)
}

// closeObjects lets objects that list their members have no others.
func closeObjects(schema any) {
	switch s := schema.(type) {
	case map[string]any:
		if _, ok := s["properties"].(map[string]any); ok && s["additionalProperties"] == nil {
			s["additionalProperties"] = false
		}
		for _, v := range s {
			closeObjects(v)
		}
	case []any:
		for _, v := range s {
			closeObjects(v)
		}
	}
}

// at gives the object at a path; nil if there is none.
func (d *description) at(path ...string) map[string]any {
	v := d.doc
	for _, name := range path {
		v, _ = v[name].(map[string]any)
	}
	return v
}

// resolve follows a $ref of the document.
func (d *description) resolve(v map[string]any) map[string]any {
	ref, ok := v["$ref"].(string)
	if !ok {
		return v
	}
	return d.at(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
}

// template is the described path that a request's path is an instance of; empty if none is.
func (d *description) template(path string) string {
	parts := strings.Split(path, "/")
	for template := range d.at("paths") {
		names := strings.Split(template, "/")
		if len(names) == len(parts) && !slices.ContainsFunc(names, func(name string) bool {
			at := slices.Index(names, name)
			return !strings.HasPrefix(name, "{") && name != parts[at]
		}) {
			return template
		}
	}
	return ""
}

// check holds an answer to the description: the status must be listed, with its content type and headers, and the
// body must be of its schema.
func (d *description) check(method, path string, w *httptest.ResponseRecorder) error {
	template := d.template(path)
	if method == http.MethodHead {
		method = http.MethodGet
	}
	operation := d.at("paths", template, strings.ToLower(method))
	if operation == nil {
		if w.Code != http.StatusNotFound && w.Code != http.StatusMethodNotAllowed && w.Code != http.StatusBadRequest {
			return fmt.Errorf("%s %s is not described, and answers %d", method, path, w.Code)
		}
		return d.validateBody("/components/schemas/Problem", w) // no such path or method
	}
	responses, _ := operation["responses"].(map[string]any)
	response, ok := responses[fmt.Sprint(w.Code)].(map[string]any)
	if !ok {
		return fmt.Errorf("%s %s answers %d, which is not described", method, template, w.Code)
	}
	at := "/paths/" + escapePointer(template) + "/" + strings.ToLower(method) + "/responses/" + fmt.Sprint(w.Code)
	if ref, ok := response["$ref"].(string); ok {
		at, response = strings.TrimPrefix(ref, "#"), d.resolve(response)
	}
	headers, _ := response["headers"].(map[string]any)
	for name := range headers {
		if w.Header().Get(name) == "" {
			return fmt.Errorf("%s %s answers %d without the header %s", method, template, w.Code, name)
		}
	}
	content, _ := response["content"].(map[string]any)
	media := w.Header().Get("Content-Type")
	switch {
	case content["*/*"] != nil:
		return nil
	case content[media] == nil:
		return fmt.Errorf("%s %s answers %d with %s, which is not described", method, template, w.Code, media)
	}
	return d.validateBody(at+"/content/"+escapePointer(media)+"/schema", w)
}

func (d *description) validateBody(pointer string, w *httptest.ResponseRecorder) error {
	body, err := jsonschema.UnmarshalJSON(bytes.NewReader(w.Body.Bytes()))
	if err != nil {
		return err
	}
	return d.validate(pointer, body)
}

// escapePointer is for one part of a JSON pointer in a URI fragment (RFC 6901 §3, §6).
func escapePointer(s string) string {
	return strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(s)
}

func (d *description) validate(pointer string, v any) error {
	schema, err := d.schemas.Compile("openapi.json#" + pointer)
	if err != nil {
		return err
	}
	return schema.Validate(v)
}

// The document is one: OpenAPI 3.1 by the OpenAPI Initiative's own schema (2022-10-07).
func TestTheDescriptionIsOpenAPI(t *testing.T) {
	d := describe(t)
	text, err := os.ReadFile("testdata/openapi-3.1-schema.json")
	if err != nil {
		t.Fatal(err)
	}
	meta, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("openapi-3.1-schema.json", meta); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("openapi-3.1-schema.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(any(d.doc)); err != nil {
		t.Errorf("%#v", err)
	}
	// Every reference leads somewhere, and every schema is one.
	for _, pointer := range d.schemasWithin("", d.doc) {
		if _, err := d.schemas.Compile("openapi.json#" + pointer); err != nil {
			t.Errorf("%s: %v", pointer, err)
		}
	}
}

func describe(t testing.TB) *description {
	t.Helper()
	d, err := theDescription()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// schemasWithin gives the places of all schemas that stand in content, parameters, headers and components.
func (d *description) schemasWithin(at string, v any) []string {
	var list []string
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			place := at + "/" + escapePointer(name)
			if name == "schema" || at == "/components/schemas" {
				list = append(list, place)
				continue
			}
			list = append(list, d.schemasWithin(place, value)...)
		}
	case []any:
		for i, value := range v {
			list = append(list, d.schemasWithin(fmt.Sprint(at, "/", i), value)...)
		}
	}
	return list
}

// Every path and method of the router is described, and nothing else, each with the verb that it needs.
func TestEveryCallIsDescribed(t *testing.T) {
	d := describe(t)
	served := map[string]string{}
	for _, o := range ingest.Operations() {
		served[o.Method+" "+o.Path] = string(o.Verb)
	}
	described := map[string]string{}
	ids := map[any]bool{}
	for path, item := range d.at("paths") {
		for method, operation := range item.(map[string]any) {
			if method == "parameters" {
				continue
			}
			o := operation.(map[string]any)
			verb, _ := o["x-doorstep-verb"].(string)
			described[strings.ToUpper(method)+" "+path] = verb
			if open := o["security"] != nil; open != (verb == "") {
				t.Errorf("%s %s asks for a key: %v, and for the verb %q", method, path, !open, verb)
			}
			if ids[o["operationId"]] || o["summary"] == nil {
				t.Errorf("%s %s has no operationId of its own, or no summary", method, path)
			}
			ids[o["operationId"]] = true
		}
	}
	if !maps.Equal(served, described) {
		t.Errorf("served is\n%v\ndescribed is\n%v", served, described)
	}
}

// Every example is of its schema.
func TestTheExamplesAreRight(t *testing.T) {
	d := describe(t)
	seen := 0
	var walk func(at string, v any)
	walk = func(at string, v any) {
		switch v := v.(type) {
		case map[string]any:
			examples, _ := v["examples"].(map[string]any)
			if example, ok := v["example"]; ok {
				examples = map[string]any{"example": map[string]any{"value": example}}
			}
			for name, example := range examples {
				seen++
				if err := d.validate(at+"/schema", example.(map[string]any)["value"]); err != nil {
					t.Errorf("%s, %s: %v", at, name, err)
				}
			}
			for name, value := range v {
				walk(at+"/"+escapePointer(name), value)
			}
		case []any:
			for i, value := range v {
				walk(fmt.Sprint(at, "/", i), value)
			}
		}
	}
	walk("", d.doc)
	if seen < 20 {
		t.Errorf("only %d examples were found", seen)
	}
}

// A check that finds nothing wrong with a wrong answer would be none.
func TestWrongAnswersAreFound(t *testing.T) {
	d := describe(t)
	const problem = `{"type":"https://doorstep.dev/problems/x","title":"t","status":404,"detail":"d","retryable":false}`
	for _, row := range []struct {
		name, method, path string
		status             int
		media, body, words string
	}{
		{"right", "GET", "/version", 200, "application/json", `{"version":"v1"}`, ""},
		{"a right problem", "GET", "/v1/namespaces/shop/events/evt_1", 404, "application/problem+json", problem, ""},
		{"an unknown member", "GET", "/v1/namespaces/shop/endpoints", 200, "application/json", `{"items":[],"x":1}`, "additional"},
		{"a missing member", "GET", "/v1/namespaces/shop/endpoints", 200, "application/json", `{}`, "missing"},
		{"a wrong kind", "GET", "/version", 200, "application/json", `{"version":1}`, "want string"},
		{"a wrong time", "DELETE", "/v1/namespaces/shop/events/e", 200, "application/json", `{"webhookId":"e","erasedAt":"now"}`, "date-time"},
		{"another status", "GET", "/version", 404, "application/problem+json", problem, "not described"},
		{"another content type", "GET", "/version", 200, "text/plain", `{"version":"v1"}`, "not described"},
		{"another path", "GET", "/v1/namespaces/shop/secrets", 200, "application/json", `{}`, "not described"},
		{"no Retry-After", "GET", "/healthz", 503, "application/problem+json", problem, "Retry-After"},
	} {
		w := httptest.NewRecorder()
		w.Header().Set("Content-Type", row.media)
		w.WriteHeader(row.status)
		_, _ = w.WriteString(row.body)
		err := d.check(row.method, row.path, w)
		if (err == nil) != (row.words == "") || err != nil && !strings.Contains(err.Error(), row.words) {
			t.Errorf("%s: %v", row.name, err)
		}
	}
}

// The page for people has every call too.
func TestEveryCallIsInTheDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range ingest.Operations() {
		call := o.Method + " " + strings.Replace(o.Path, "/v1/namespaces/{namespace}/", "…/", 1)
		if !bytes.Contains(page, []byte("`"+call+"`")) {
			t.Errorf("docs/api.md says nothing of %s", call)
		}
	}
}
