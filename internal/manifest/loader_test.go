package manifest

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/doorstep-dev/doorstep/internal/sign"
)

const goodEndpoint = `apiVersion: doorstep.dev/v1alpha1
kind: WebhookEndpoint
metadata:
  name: orders
  namespace: shop
spec:
  url: https://hooks.example.com/orders
`

// endpointYAML is a good endpoint of the given name.
func endpointYAML(name string) string {
	return strings.ReplaceAll(goodEndpoint, "orders", name)
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func newLoader(t *testing.T, dir string) *Loader {
	t.Helper()
	l, err := NewLoader(dir)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// names are the endpoints of a snapshot, as a list.
func names(s Snapshot) string {
	var out []string
	for _, e := range s.Objects.Endpoints {
		out = append(out, e.Name)
	}
	return strings.Join(out, " ")
}

func TestEveryBadManifestIsReportedByFileLineAndField(t *testing.T) {
	spec := func(rest string) string {
		return "apiVersion: doorstep.dev/v1alpha1\nkind: WebhookEndpoint\nmetadata:\n  name: bad\nspec:\n" + rest
	}
	policy := func(rest string) string {
		return "apiVersion: doorstep.dev/v1alpha1\nkind: RetryPolicy\nmetadata:\n  name: bad\nspec:\n" + rest
	}
	pool := func(rest string) string {
		return "apiVersion: doorstep.dev/v1alpha1\nkind: DeliveryPool\nmetadata:\n  name: default\nspec:\n" + rest
	}
	secret := func(rest string) string {
		return "apiVersion: v1\nkind: Secret\nmetadata:\n  name: bad\n" + rest
	}
	const url = "  url: https://example.com/s3cret\n"
	for _, tc := range []struct {
		name, text    string
		line          int
		field, wanted string
	}{
		{"an unknown field", spec(url + "  eventType: [a]\n"), 7, "spec.eventType", "unknown field"},
		{"an unknown field deep inside", spec(url + "  signing:\n    keys:\n    - name: a\n      secretKeyRef: {name: s, key: k}\n      expires: never\n"), 11, "spec.signing.keys[0].expires", "unknown field"},
		{"an unknown field of metadata", "apiVersion: doorstep.dev/v1alpha1\nkind: WebhookEndpoint\nmetadata:\n  name: bad\n  lables: {a: b}\nspec:\n" + url, 5, "metadata.lables", "unknown field"},
		{"an unknown field at the root", spec(url) + "suspend: true\n", 7, "suspend", "unknown field"},
		{"a required field that is missing", spec("  suspend: true\n"), 5, "spec", "exactly one of url, urlFrom and serviceRef"},
		{"a required field that is null", spec("  url:\n"), 5, "spec", "exactly one of url, urlFrom and serviceRef"},
		{"no spec", "apiVersion: doorstep.dev/v1alpha1\nkind: WebhookEndpoint\nmetadata:\n  name: bad\n", 1, "spec", "equired"},
		{"a value of another type", spec(url + "  maxInFlight: many\n"), 7, "spec.maxInFlight", "must be a whole number, not a text"},
		{"a text where a list belongs", spec(url + "  eventTypes: order.*\n"), 7, "spec.eventTypes", "must be a list, not a text; begin each entry with a dash"},
		{"a mapping where a list belongs", spec(url + "  headers: {name: x, value: y}\n"), 7, "spec.headers", "must be a list, not a mapping"},
		{"a number where a text belongs", spec(url + "  timeout: 15\n"), 7, "spec.timeout", "must be a text, not a whole number; put quotes around it"},
		{"a number where a mapping belongs", spec(url + "  rateLimit: 100\n"), 7, "spec.rateLimit", "must be a mapping, not a whole number; give its fields by name"},
		{"a number out of range", spec(url + "  maxInFlight: 5000\n"), 7, "spec.maxInFlight", "less than or equal to 1000"},
		{"a value that is none of the enum", spec(url + "  signing:\n    scheme: Svix\n"), 8, "spec.signing.scheme", "StandardWebhooks"},
		{"a duration that is none", spec(url + "  timeout: soon\n"), 7, "spec.timeout", "must be a duration such as 15s"},
		{"an attribute in camel case", spec(url + "  matchAttributes: [{name: customerId, value: \"1\"}]\n"), 7, "spec.matchAttributes[0].name", "must be of lower-case letters and digits"},
		{"a rule: timeout from 1s to 60s", spec(url + "  timeout: 61s\n"), 7, "spec.timeout", "timeout must be from 1s to 60s"},
		{"a rule: no user in the URL", spec("  url: https://me:s3cret@example.com/\n"), 6, "spec.url", "must not hold a user name"},
		{"a rule: event types", spec(url + "  eventTypes:\n  - order.*\n  - a*b\n"), 9, "spec.eventTypes[1]", "asterisk can stand nowhere else"},
		{"a rule on the root: the length of the name", strings.Replace(spec(url), "bad", strings.Repeat("a", 64), 1), 4, "metadata.name", "at most 63"},
		{"an entry twice in a set", spec(url + "  eventTypes: [a, b, a]\n"), 7, "spec.eventTypes[2]", "stands twice"},
		{"a key twice in a list map", spec(url + "  signing:\n    keys:\n    - {name: a, secretKeyRef: {name: s, key: k}}\n    - {name: a, secretKeyRef: {name: s, key: l}}\n"), 10, "spec.signing.keys[1]", "stands twice"},
		{"an empty list", spec(url + "  eventTypes: []\n"), 7, "spec.eventTypes", "at least 1"},
		{"a YAML key twice", spec(url + "  suspend: true\n  timeout: 5s\n  suspend: false\n"), 9, "spec.suspend", "stands twice"},
		{"a name that is none", strings.Replace(spec(url), "bad", "Bad_Name", 1), 4, "metadata.name", "lowercase RFC 1123"},
		{"a namespace that is none", strings.Replace(spec(url), "name: bad", "name: bad\n  namespace: Shop", 1), 5, "metadata.namespace", "lowercase RFC 1123"},
		{"a label that is none", strings.Replace(spec(url), "name: bad", "name: bad\n  labels:\n    a: \"-\"", 1), 5, "metadata.labels", "alphanumeric"},
		{"no name", strings.Replace(spec(url), "name: bad", "labels: {a: b}", 1), 3, "metadata.name", "required"},
		{"a name that is a number", strings.Replace(spec(url), "name: bad", "name: 5", 1), 4, "metadata.name", "required, as text"},
		{"an apiVersion of no release", strings.Replace(spec(url), "v1alpha1", "v9", 1), 1, "apiVersion", "doorstep.dev/v1alpha1 only"},
		{"an apiVersion of another group", strings.Replace(spec(url), "doorstep.dev", "doorstep.io", 1), 1, "apiVersion", "has apiVersion doorstep.dev/v1alpha1"},
		{"no kind", strings.Replace(spec(url), "kind: WebhookEndpoint\n", "", 1), 1, "kind", "required"},
		{"no apiVersion", "# x\n" + strings.Replace(spec(url), "apiVersion: doorstep.dev/v1alpha1\n", "", 1), 2, "apiVersion", "required"},
		{"a kind that there is not", strings.Replace(spec(url), "WebhookEndpoint", "WebhookEndpont", 1), 2, "kind", "write WebhookEndpoint"},
		{"not an object", "- a\n- b\n", 1, "", "not an object"},
		{"not YAML", "a: b\nc: [d\ne: f\n", 3, "", "not valid YAML"},
		{"a tab as indentation", "apiVersion: v1\nkind: Secret\nmetadata:\n\tname: a\n", 4, "", "not valid YAML"},
		{"not YAML, in the third document", "# one\n---\n" + goodEndpoint + "---\nspec: {url: \"s3cret\n", 11, "", "not valid YAML"},
		{"the second document", goodEndpoint + "---\n# why\n" + spec(url+"  maxInFlight: 0\n"), 16, "spec.maxInFlight", "greater than or equal to 1"},
		{"an item of a List", "apiVersion: v1\nkind: List\nitems:\n- apiVersion: doorstep.dev/v1alpha1\n  kind: RetryPolicy\n  metadata: {name: fine}\n  spec: {}\n- apiVersion: doorstep.dev/v1alpha1\n  kind: RetryPolicy\n  metadata: {name: bad}\n  spec:\n    maxAge: 0s\n", 12, "spec.maxAge", "at least 1s"},
		{"an item of a typed List", "apiVersion: doorstep.dev/v1alpha1\nkind: RetryPolicyList\nitems:\n- metadata: {name: bad}\n  spec:\n    maxAge: 0s\n", 6, "spec.maxAge", "at least 1s"},
		{"a List without items", "apiVersion: v1\nkind: List\n", 1, "items", "must be a list"},
		{"JSON", "{\n  \"apiVersion\": \"doorstep.dev/v1alpha1\",\n  \"kind\": \"WebhookEndpoint\",\n  \"metadata\": {\"name\": \"bad\"},\n  \"spec\": {\n    \"url\": \"https://example.com\",\n    \"maxInFlight\": 0\n  }\n}\n", 7, "spec.maxInFlight", "greater than or equal to 1"},
		{"JSON with an emoji and a key twice", "{\"apiVersion\": \"doorstep.dev/v1alpha1\", \"kind\": \"WebhookEndpoint\",\n\"metadata\": {\"name\": \"bad\", \"annotations\": {\"x\": \"\\ud83d\\ude00\"}},\n\"spec\": {\"url\": \"https://example.com\",\n\"url\": \"https://example.org\"}}\n", 4, "spec.url", "stands twice"},
		{"two kinds of backoff", policy("  backoff:\n    schedule: [1s]\n    exponential: {initial: 1s, factor: 2, max: 1m, maxAttempts: 3}\n"), 6, "spec.backoff", "exactly one of schedule and exponential"},
		{"a delay of nothing", policy("  backoff:\n    schedule:\n    - 1s\n    - 0s\n"), 9, "spec.backoff.schedule[1]", "longer than 0s"},
		{"2xx listed as an answer", policy("  responses:\n    retry: [\"2xx\"]\n"), 7, "spec.responses.retry[0]", "2xx always means delivered"},
		{"percent without Proportional", policy("  jitter: {type: Full, percent: 5}\n"), 6, "spec.jitter", "belongs to type Proportional"},
		{"a network with bits behind the prefix", pool("  egress:\n    allow:\n    - cidr: 10.0.0.1/8\n"), 8, "spec.egress.allow[0].cidr", "zeros after the prefix"},
		{"a payload over 1 MiB", pool("  ingest: {maxPayloadBytes: 2000000}\n"), 6, "spec.ingest.maxPayloadBytes", "less than or equal to 1048576"},
		{"Secret data that is not base64", secret("data:\n  key: s3cret!\n"), 6, "data", "must be base64"},
		{"Secret text that is a number", secret("stringData:\n  key: 12345\n"), 6, "stringData", "quotes around a number"},
		{"an unknown field of a Secret", secret("stringdata:\n  key: s3cret\n"), 5, "stringdata", "unknown field"},
		{"a Secret key that is none", secret("stringData:\n  a/b: s3cret\n"), 6, "stringData", "must consist of alphanumeric"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			path := write(t, dir, "bad.yaml", tc.text)
			write(t, dir, "good.yaml", endpointYAML("neighbour"))
			s := newLoader(t, dir).Load()
			var found *Problem
			for i, p := range s.Problems {
				if p.File == path && p.Field == tc.field && strings.Contains(p.Message, tc.wanted) {
					found = &s.Problems[i]
				}
				if strings.Contains(p.String(), "s3cret") {
					t.Errorf("problem %q quotes a value", p)
				}
			}
			switch {
			case found == nil:
				t.Fatalf("problems %v, want one of field %q with %q", s.Problems, tc.field, tc.wanted)
			case tc.line != 0 && found.Line != tc.line:
				t.Errorf("problem %q, want it in line %d", found, tc.line)
			case found.Line == 0:
				t.Errorf("problem %q has no line", found)
			}
			if !strings.Contains(names(s), "neighbour") {
				t.Errorf("endpoints %q, want the good one among them", names(s))
			}
			for _, e := range s.Objects.Endpoints {
				if e.Name == "bad" {
					t.Error("the bad object is in force")
				}
			}
		})
	}
}

func TestAProblemReadsAsFileLineObjectFieldAndMessage(t *testing.T) {
	p := Problem{File: "m/a.yaml", Line: 7, Kind: "WebhookEndpoint", Namespace: "shop", Name: "orders", Field: "spec.url", Message: "required, but not set", Kept: true}
	if got, want := p.String(), "m/a.yaml:7: WebhookEndpoint shop/orders: spec.url: required, but not set (the former version stays in force)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	p = Problem{Kind: "Secret", Namespace: "shop", Name: "made", Message: "no"}
	if got, want := p.String(), "Secret shop/made: no"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	p = Problem{File: "m", Message: "no manifests"}
	if got, want := p.String(), "m: no manifests"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestGoodManifests(t *testing.T) {
	key := sign.NewKey()
	for _, tc := range []struct {
		name, file, text, want string
		notes                  int
	}{
		{"a missing namespace is default", "a.yaml", strings.Replace(goodEndpoint, "  namespace: shop\n", "", 1), "default/orders", 0},
		{"many documents, odd markers, comments", "a.yml", "# first\n--- # a\n" + endpointYAML("a") + "...\n# between\n---\n---\n" + endpointYAML("b") + "---\n# the end\n", "shop/a shop/b", 0},
		{"a document on its marker's line", "a.yaml", "--- {apiVersion: doorstep.dev/v1alpha1, kind: WebhookEndpoint, metadata: {name: a, namespace: shop}, spec: {url: \"https://example.com\"}}\n---\n" + endpointYAML("b"), "shop/a shop/b", 0},
		{"a directive", "a.yaml", "%YAML 1.1\n---\n" + endpointYAML("a"), "shop/a", 0},
		{"Windows line ends and a byte order mark", "a.yaml", "\ufeff" + strings.ReplaceAll(endpointYAML("a")+"---\n"+endpointYAML("b"), "\n", "\r\n"), "shop/a shop/b", 0},
		{"JSON with tabs and escapes", "a.json", "{\n\t\"apiVersion\": \"doorstep.dev/v1alpha1\", \"kind\": \"WebhookEndpoint\",\n\t\"metadata\": {\"name\": \"a\", \"namespace\": \"shop\", \"annotations\": {\"x\": \"\\ud83d\\ude00\"}},\n\t\"spec\": {\"url\": \"https:\\/\\/example.com\"}}", "shop/a", 0},
		{"a List of Lists", "a.yaml", "apiVersion: v1\nkind: List\nitems:\n- apiVersion: doorstep.dev/v1alpha1\n  kind: WebhookEndpointList\n  items:\n  - metadata: {name: a, namespace: shop}\n    spec: {url: \"https://example.com\"}\n", "shop/a", 0},
		{"anchors and merges", "a.yaml", "apiVersion: doorstep.dev/v1alpha1\nkind: WebhookEndpoint\nmetadata: {name: a, namespace: shop, annotations: &x {k: v}, labels: {<<: *x}}\nspec: {url: \"https://example.com\", suspend: yes}\n", "shop/a", 0},
		{"as kubectl get -o yaml prints it", "a.yaml", "apiVersion: doorstep.dev/v1alpha1\nkind: WebhookEndpoint\nmetadata:\n  name: a\n  namespace: shop\n  creationTimestamp: null\n  generation: 3\n  resourceVersion: \"5\"\n  uid: 0b1f\n  managedFields:\n  - {manager: kubectl, operation: Apply, apiVersion: doorstep.dev/v1alpha1, time: \"2026-11-30T00:00:00Z\", fieldsType: FieldsV1, fieldsV1: {\"f:spec\": {}}}\nspec: {url: \"https://example.com\"}\nstatus: {observedGeneration: 3, somethingNew: 1}\n", "shop/a", 0},
		{"other kinds and other files are passed over", "a.yaml", endpointYAML("a") + "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n---\nreplicas: 3\nimage: x\nKind: y\n---\napiVersion: networking.example.com/v1\nkind: Route\nmetadata: {name: x}\n", "shop/a", 3},
		{"Secret and ConfigMap", "a.yaml", endpointYAML("a") + "---\napiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: shop}\ntype: Opaque\nimmutable: true\ndata: {key: " + base64.StdEncoding.EncodeToString([]byte(key)) + "}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: b}\n", "shop/a", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, tc.file, tc.text)
			s := newLoader(t, dir).Load()
			var got []string
			for _, e := range s.Objects.Endpoints {
				got = append(got, e.Namespace+"/"+e.Name)
			}
			if strings.Join(got, " ") != tc.want || len(s.Problems) != 0 || len(s.Notes) != tc.notes || !s.Objects.Complete {
				t.Errorf("endpoints %v, problems %v, notes %v, complete %t; want %s without problems", got, s.Problems, s.Notes, s.Objects.Complete, tc.want)
			}
			for _, sec := range s.Objects.Secrets {
				if string(sec.Data["key"]) != key {
					t.Error("the Secret's data is not decoded")
				}
			}
		})
	}
}

func TestTheSameObjectInTwoPlaces(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "b.yaml", endpointYAML("a"))
	second := write(t, dir, "c.yaml", "# other\n"+strings.Replace(endpointYAML("a"), "hooks.", "other.", 1))
	l := newLoader(t, dir)
	s := l.Load()
	if len(s.Problems) != 1 || s.Problems[0].File != second || s.Problems[0].Line != 2 || !strings.Contains(s.Problems[0].Message, "b.yaml:1, which holds") {
		t.Errorf("problems %v, want one of %s:2", s.Problems, second)
	}
	// A copy that comes later is the second one, wherever its name sorts.
	write(t, dir, "a.yaml", strings.Replace(endpointYAML("a"), "hooks.", "third.", 1))
	s = l.Load()
	if len(s.Problems) != 2 || s.Objects.Endpoints[0].Spec.URL != "https://hooks.example.com/a" {
		t.Errorf("URL %s with problems %v, want the first object in force", s.Objects.Endpoints[0].Spec.URL, s.Problems)
	}
	// When the first goes, the next one takes its place.
	if err := os.Remove(filepath.Join(dir, "b.yaml")); err != nil {
		t.Fatal(err)
	}
	s = l.Load()
	if len(s.Problems) != 1 || s.Objects.Endpoints[0].Spec.URL != "https://third.example.com/a" {
		t.Errorf("URL %s with problems %v, want a.yaml's", s.Objects.Endpoints[0].Spec.URL, s.Problems)
	}
}

func TestBoundsAreToldInWords(t *testing.T) {
	t.Run("a file over 4 MiB", func(t *testing.T) {
		dir := t.TempDir()
		path := write(t, dir, "big.yaml", "# "+strings.Repeat("x", maxFileBytes)+"\n")
		write(t, dir, "good.yaml", goodEndpoint)
		s := newLoader(t, dir).Load()
		if len(s.Problems) != 1 || s.Problems[0].File != path || !strings.Contains(s.Problems[0].Message, "4 MiB") || s.Objects.Complete || names(s) != "orders" {
			t.Errorf("problems %v complete %t endpoints %q", s.Problems, s.Objects.Complete, names(s))
		}
	})
	t.Run("links that go in a circle", func(t *testing.T) {
		dir := t.TempDir()
		write(t, dir, "sub/a.yaml", endpointYAML("a"))
		for link, target := range map[string]string{"sub/up": "..", "sub/self": ".", "again": "sub", "b.yaml": "sub/a.yaml"} {
			if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
				t.Fatal(err)
			}
		}
		s := newLoader(t, dir).Load()
		if names(s) != "a" || len(s.Problems) != 0 || !s.Objects.Complete {
			t.Errorf("endpoints %q problems %v, want the one endpoint once", names(s), s.Problems)
		}
	})
	t.Run("the data folder within", func(t *testing.T) {
		dir := t.TempDir()
		write(t, dir, "a.yaml", endpointYAML("a"))
		write(t, dir, "data/plan.json", "{}")
		write(t, dir, "data/secrets/x.yaml", endpointYAML("b"))
		l, err := NewLoader(dir, filepath.Join(dir, "data"), filepath.Join(dir, "none"))
		if err != nil {
			t.Fatal(err)
		}
		if s := l.Load(); names(s) != "a" || len(s.Problems)+len(s.Notes) != 0 || !s.Objects.Complete {
			t.Errorf("endpoints %q problems %v notes %v, want nothing of the data folder", names(s), s.Problems, s.Notes)
		}
	})
	t.Run("aliases that multiply", func(t *testing.T) {
		dir := t.TempDir()
		text := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
		for c := 'b'; c < 'k'; c++ {
			text += fmt.Sprintf("%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n", c, c, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1)
		}
		write(t, dir, "a.yaml", text)
		if s := newLoader(t, dir).Load(); len(s.Problems) != 1 || !strings.Contains(s.Problems[0].Message, "aliases (*name)") {
			t.Errorf("problems %v, want one about aliases", s.Problems)
		}
	})
	t.Run("a pipe", func(t *testing.T) {
		dir := t.TempDir()
		if err := makePipe(filepath.Join(dir, "p.yaml")); err != nil {
			t.Fatalf("make a pipe: %v", err)
		}
		if s := newLoader(t, dir).Load(); len(s.Problems) != 1 || !strings.Contains(s.Problems[0].Message, "not a regular file") || s.Objects.Complete {
			t.Errorf("problems %v, want one about the pipe", s.Problems)
		}
	})
}

func BenchmarkLoad1000Objects(b *testing.B) {
	dir := b.TempDir()
	for f := range 50 {
		var text strings.Builder
		for i := range 20 {
			text.WriteString(endpointYAML(fmt.Sprintf("e%d-%d", f, i)) + "  eventTypes: [order.*, payment.completed]\n---\n")
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.yaml", f)), []byte(text.String()), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		l, err := NewLoader(dir)
		if err != nil {
			b.Fatal(err)
		}
		if s := l.Load(); len(s.Objects.Endpoints) != 1000 || len(s.Problems) > 0 {
			b.Fatalf("%d endpoints, problems %v", len(s.Objects.Endpoints), s.Problems)
		}
	}
}

func BenchmarkPoll1000Files(b *testing.B) {
	dir := b.TempDir()
	for f := range 1000 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.yaml", f)), []byte(endpointYAML("a")), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	first := walk(dir, nil)
	for b.Loop() {
		if !walk(dir, nil).same(first) {
			b.Fatal("a walk found a change")
		}
	}
}

// FuzzParse looks for texts that crash the reading or get a problem without a line
// of the file.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		goodEndpoint, "---\n...\n--- a\n", "%YAML 1.1\n---\n{}", "a: &a [*a]", "{\"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": [{}, 1, null]}",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: {a: 1, <<: {b: c}}", "\xef\xbb\xbf\r\n---\r\n\t", "? [a]\n: b\n", "\r?\r\r?",
		"apiVersion: doorstep.dev/v1alpha1\nkind: RetryPolicy\nmetadata: [1]\nspec: &x {backoff: *x}",
	} {
		f.Add([]byte(seed))
	}
	schemas, err := builtIn()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if halfWritten(text, nil) != nil {
			return
		}
		l := &Loader{schemas: schemas}
		got := l.parseFile("f.yaml", text)
		problems := got.problems
		for _, c := range got.claims {
			problems = append(problems, c.problems...)
			if (c.object == nil) == (len(c.problems) == 0) {
				t.Errorf("%v is accepted %t with problems %v", c.identity, c.object != nil, c.problems)
			}
		}
		last := strings.Count(string(text), "\n") + 1
		for _, p := range problems {
			if p.Line < 1 || p.Line > last || p.Message == "" {
				t.Errorf("problem %q of a file of %d lines", p, last)
			}
		}
	})
}

// ConfigMaps hold certificates: they are objects like the others, and one that is refused
// is not known to be gone.
func TestConfigMapsAreLoaded(t *testing.T) {
	const good = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ca, namespace: shop}\ndata: {ca.crt: one}\nbinaryData: {b: AAE=}\n"
	dir := t.TempDir()
	write(t, dir, "orders.yaml", endpointYAML("orders"))
	write(t, dir, "ca.yaml", good)
	l := newLoader(t, dir)
	s := l.Load()
	if len(s.Objects.ConfigMaps) != 1 || len(s.Problems) != 0 || !s.Objects.Complete {
		t.Fatalf("%+v, problems %v", s.Objects.ConfigMaps, s.Problems)
	}
	if m := s.Objects.ConfigMaps[0]; m.Namespace != "shop" || m.Name != "ca" || m.Data["ca.crt"] != "one" || string(m.BinaryData["b"]) != "\x00\x01" {
		t.Errorf("%+v", m)
	}
	write(t, dir, "ca.yaml", strings.Replace(good, "one", "two", 1))
	next := l.Load()
	if next.Digest == s.Digest || next.Objects.ConfigMaps[0].Data["ca.crt"] != "two" {
		t.Error("a change of it is not seen")
	}
	bad := strings.Replace(good, "ca.crt: one", "ca.crt: 7", 1)
	write(t, dir, "ca.yaml", bad)
	if s := l.Load(); len(s.Problems) != 1 || !s.Problems[0].Kept || len(s.Objects.ConfigMaps) != 1 || s.Objects.ConfigMaps[0].Data["ca.crt"] != "two" {
		t.Errorf("a bad one: problems %v, %+v", s.Problems, s.Objects.ConfigMaps)
	}
	if s := newLoader(t, dir).Load(); len(s.Problems) != 1 || len(s.Objects.ConfigMaps) != 0 || s.Objects.Complete {
		t.Errorf("a bad one at first sight: problems %v, complete %t", s.Problems, s.Objects.Complete)
	}
}
