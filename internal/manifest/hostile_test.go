package manifest

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// parseOne reads a text as the one file of a Loader.
func parseOne(t testing.TB, text string) *file {
	t.Helper()
	schemas, err := builtIn()
	if err != nil {
		t.Fatal(err)
	}
	return (&Loader{schemas: schemas}).parseFile("f.yaml", []byte(text))
}

// said is everything that reading a file tells.
func (f *file) said() []Problem {
	out := append([]Problem(nil), f.problems...)
	for _, c := range f.claims {
		out = append(out, c.problems...)
	}
	return append(out, f.notes...)
}

func secretYAML(rest string) string {
	return "apiVersion: v1\nkind: Secret\nmetadata:\n  name: bad\n" + rest
}

func TestAFewKilobytesOfAliasesNeverBecomeGigabytes(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for _, tc := range []struct{ name, text, want string }{
		{"a long text, 8,000 times", "a: &a " + long + "\nb: [" + strings.Repeat("*a,", 8000) + "]\n", "more than 8 MiB"},
		{"a long key, 8,000 times", "a: &a " + long[:1000] + "\nb: [" + strings.Repeat("{*a : 1},", 9000) + "]\n", "more than 8 MiB"},
		{"a text of a text", "a: &a [" + long + "]\nb: &b [" + strings.Repeat("*a,", 50) + "]\nc: [" + strings.Repeat("*b,", 50) + "]\n", "more than 8 MiB"},
		{"many small values", "a: &a [" + strings.Repeat("1,", 1000) + "]\nb: [" + strings.Repeat("*a,", 1000) + "]\n", "values once its aliases"},
		{"merges", "a: &a {k: " + long + "}\nb: [" + strings.Repeat("{<<: *a},", 200) + "]\n", "more than 8 MiB"},
		{"a text that only one parser might read", "a: &a " + long + "\nb: \x7f [" + strings.Repeat("*a,", 8000) + "]\n", "control character"},
		{"a mapping within itself", "a: &a\n  b: *a\n", "within the value that it refers to"},
		{"a list within itself", "a: &a [[*a]]\n", "within the value that it refers to"},
		{"a list of two million values", "[" + strings.Repeat("1,", 2_000_000) + "1]", "300000 values"},
		{"the same in YAML", "a: [" + strings.Repeat("x,", 2_000_000) + "x]", "300000 values"},
		{"a list in a list in a list", strings.Repeat("- ", 400_000) + "a", "300000 values"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			f := parseOne(t, tc.text)
			runtime.ReadMemStats(&after)
			if len(f.problems) != 1 || !strings.Contains(f.problems[0].Message, tc.want) || !f.broken {
				t.Errorf("problems %v, want one with %q", f.problems, tc.want)
			}
			if used := (after.TotalAlloc - before.TotalAlloc) >> 20; used > 64 {
				t.Errorf("%d MiB were used to refuse %d KiB of text", used, len(tc.text)>>10)
			}
		})
	}
	// What people write with aliases goes on working.
	f := parseOne(t, "apiVersion: v1\nkind: Secret\nmetadata: {name: a, labels: &l {a: b}, annotations: {<<: *l}}\nstringData: {a: &k whsec_x, b: *k}\n")
	if len(f.said()) != 0 || len(f.claims) != 1 {
		t.Errorf("problems %v, want none", f.said())
	}
}

func TestASyntaxErrorIsWordedWithItsLineAndNoValue(t *testing.T) {
	for _, tc := range []struct {
		name, rest string
		line       int
		want       string
	}{
		{"an unknown alias", "stringData:\n  password: *S3CRET\n", 6, "begins with *"},
		{"an unknown alias in a list", "stringData:\n  a: \"*S3CRETmore\"\n  b: [*S3CRET]\n", 7, "begins with *"},
		{"a value that does not fit its tag", "stringData:\n  a: !!int 5\n  key: !!int S3CRET\n", 7, "does not fit the tag"},
		{"an unknown tag", "stringData:\n  key: !S3CRET!x y\n", 6, "tag"},
		{"a tag of nothing", "stringData:\n  key: !!binary S3CRET!\n", 6, "not base64"},
		{"a mapping as a key", "stringData:\n  ? {S3CRET: 1}\n", 6, "a key is not a text"},
		{"a list as a key", "stringData:\n  [S3CRET]: 1\n", 6, "a key is not a text"},
		{"an empty key", "stringData:\n  a: b\n  ~: S3CRET\n", 7, "a key is empty"},
		{"a merge of a text", "stringData:\n  a: b\n  <<: S3CRET\n", 7, "<<"},
		{"infinity", "stringData:\n  a: S3CRET\n  b: .inf\n", 7, "infinite"},
		{"a value with a colon", "stringData:\n  key: S3CRET: S3CRET\n", 6, "a colon stands"},
		{"quotes that do not end", "stringData:\n  key: \"S3CRET\n", 6, "quotes"},
		{"a bad escape", "stringData:\n  key: \"\\S3CRET\"\n", 6, "backslash"},
		{"a percent sign", "stringData:\n  key: %S3CRET\n", 6, "can't begin one"},
		{"an at sign", "stringData:\n  key: @S3CRET\n", 6, "can't begin one"},
		{"an ampersand", "stringData:\n  key: &?S3CRET\n", 6, "& or *"},
		{"a pipe with a text", "stringData:\n  key: |S3CRET\n", 6, "| or >"},
		{"a list that is not closed", "stringData:\n  key: [S3CRET\n  b: c\n", 0, "[ ]"},
		{"a list that is closed twice", "stringData:\n  key: ]S3CRET\n", 6, "a value was expected"},
		{"a line that is indented less", "stringData:\n    a: b\n  key: S3CRET\n", 7, "a key was expected"},
		{"text after quotes", "stringData:\n  key: \"a\" S3CRET\n", 6, "a key was expected"},
		{"a control character", "stringData:\n  a: b\n  key: S3CRET\x7f\n", 7, "control character"},
		{"bytes that are no text", "stringData:\n  a: b\n  key: S3CRET\xff\n", 7, "not UTF-8"},
		{"a line that a value names", "stringData:\n  key: *line 1: S3CRET\n", 6, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := parseOne(t, "# one\n---\n"+secretYAML(tc.rest))
			if len(f.said()) == 0 {
				t.Fatal("no problem is reported")
			}
			p := f.said()[0]
			if !strings.Contains(p.Message, tc.want) || strings.Contains(p.Message, otherSyntax) || (tc.line != 0 && p.Line != tc.line+2) {
				t.Errorf("problem %q, want %q in line %d", p, tc.want, tc.line+2)
			}
			for _, p := range f.said() {
				if strings.Contains(p.String(), "S3CRET") {
					t.Errorf("problem %q quotes a value", p)
				}
			}
		})
	}
}

// planted stands at every place of these manifests that may hold a secret. It is
// told apart by any four of its letters.
const planted = "QZXJQZXJQZXJQZXJ"

var plantedManifests = []string{
	`apiVersion: v1
kind: Secret
metadata:
  name: keys
  namespace: shop
  annotations:
    note: QZXJQZXJQZXJQZXJ
    "quoted": "QZXJQZXJQZXJQZXJ"
  labels: {team: QZXJQZXJQZXJQZXJ}
type: Opaque
stringData:
  key: QZXJQZXJQZXJQZXJ
  user: "QZXJQZXJQZXJQZXJ: QZXJQZXJQZXJQZXJ"
  single: 'QZXJQZXJQZXJQZXJ # QZXJQZXJQZXJQZXJ'
  flow: {a: QZXJQZXJQZXJQZXJ}
  block: |
    QZXJQZXJQZXJQZXJ: QZXJQZXJQZXJQZXJ
    - QZXJQZXJQZXJQZXJ
  alias: &QZXJQZXJQZXJQZXJ QZXJQZXJQZXJQZXJ
  again: *QZXJQZXJQZXJQZXJ
data:
  raw: QZXJQZXJQZXJQZXJ
  long: >-
    QZXJQZXJQZXJQZXJ
    QZXJQZXJQZXJQZXJ
`,
	`apiVersion: v1
kind: Secret
metadata: {name: keys, creationTimestamp: QZXJQZXJQZXJQZXJ, finalizers: [QZXJQZXJQZXJQZXJ], labels: {a: 1}}
immutable: QZXJQZXJQZXJQZXJ
stringData: {a: QZXJQZXJQZXJQZXJ, b: "QZXJQZXJQZXJQZXJ", c: !!str QZXJQZXJQZXJQZXJ, d: [QZXJQZXJQZXJQZXJ], e}
`,
	`apiVersion: v1
kind: Secret
metadata:
  name: keys
  ownerReferences:
  - {apiVersion: v1, kind: Pod, name: QZXJQZXJQZXJQZXJ, uid: QZXJQZXJQZXJQZXJ, controller: true}
  - {apiVersion: v1, kind: Pod, name: QZXJQZXJQZXJQZXJ, uid: QZXJQZXJQZXJQZXJ, controller: true}
  managedFields:
  - {manager: QZXJQZXJQZXJQZXJ, operation: QZXJQZXJQZXJQZXJ, time: QZXJQZXJQZXJQZXJ}
extra: QZXJQZXJQZXJQZXJ
data: QZXJQZXJQZXJQZXJ
`,
	`apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Secret
  metadata:
    name: keys
  stringData:
    key: QZXJQZXJQZXJQZXJ
    QZXJQZXJQZXJQZXJ: 1
  QZXJQZXJQZXJQZXJ: 2
`,
	`apiVersion: v1
metadata: {name: keys}
stringData: {a: QZXJQZXJQZXJQZXJ}
kind: Secret
 QZXJQZXJQZXJQZXJ
`,
	`apiVersion: v1
kind: Secret
metadata: {name: QZXJQZXJQZXJQZXJ, namespace: QZXJQZXJQZXJQZXJ}
stringData: {a: 1}
`,
	`{
  "apiVersion": "v1",
  "kind": "Secret",
  "metadata": {"name": "keys", "annotations": {"a": "QZXJQZXJQZXJQZXJ"}},
  "stringData": {
    "a": "QZXJQZXJQZXJQZXJ",
    "b": "QZXJQZXJQZXJQZXJ\n\ud83d\ude00",
    "QZXJQZXJQZXJQZXJ": "QZXJQZXJQZXJQZXJ",
    "QZXJQZXJQZXJQZXJ": 5
  },
  "data": {"a": "QZXJQZXJQZXJQZXJ", "b": 7}
}
`,
	`apiVersion: doorstep.dev/v1alpha1
kind: WebhookEndpoint
metadata: {name: a, annotations: {a: QZXJQZXJQZXJQZXJ}}
spec:
  url: "https://u:QZXJQZXJQZXJQZXJ@example.com/?t=QZXJQZXJQZXJQZXJ"
  timeout: "QZXJQZXJQZXJQZXJ"
  maxInFlight: "QZXJQZXJQZXJQZXJ"
  eventTypes: ["QZXJQZXJQZXJQZXJ*", "QZXJQZXJQZXJQZXJ*"]
  signing: {scheme: "QZXJQZXJQZXJQZXJ", keys: "QZXJQZXJQZXJQZXJ"}
`,
}

// breakText makes a few slips of the keyboard.
func breakText(r *rand.Rand, text string) string {
	const slips = "\t\n :,{}[]&*!|>'\"%@`#-?~<\\\x7f\x00\xff0a"
	b := []byte(text)
	for range 1 + r.IntN(3) {
		if len(b) == 0 {
			break
		}
		at := r.IntN(len(b))
		switch r.IntN(6) {
		case 0:
			b = append(b[:at:at], b[at+1:]...)
		case 1:
			b = append(b[:at:at], append([]byte{slips[r.IntN(len(slips))]}, b[at:]...)...)
		case 2:
			b[at] = slips[r.IntN(len(slips))]
		case 3:
			b = b[:at]
		case 4: // a line is lost, or doubled
			lines := bytes.SplitAfter(b, []byte("\n"))
			n := r.IntN(len(lines))
			if r.IntN(2) == 0 {
				lines[n] = bytes.Repeat(lines[n], 2)
			} else {
				lines[n] = nil
			}
			b = bytes.Join(lines, nil)
		default: // a line is indented more, or less
			lines := bytes.SplitAfter(b, []byte("\n"))
			n := r.IntN(len(lines))
			if r.IntN(2) == 0 {
				lines[n] = append([]byte("  "), lines[n]...)
			} else {
				lines[n] = bytes.TrimPrefix(lines[n], []byte("  "))
			}
			b = bytes.Join(lines, nil)
		}
	}
	return string(b)
}

func TestNoSecretIsEverSaidHoweverItsManifestIsBroken(t *testing.T) {
	const seed = 20261130
	r := rand.New(rand.NewPCG(seed, 1))
	spoken := 0
	for i, text := range plantedManifests {
		for n := range 3000 {
			broken := text
			if n > 0 {
				broken = breakText(r, text)
			}
			if strings.Contains(broken, "kind: WebhookEndpoint") && n > 0 {
				break // names of its fields are said, and a slip makes names of values
			}
			if halfWritten([]byte(broken), nil) != nil {
				continue
			}
			for _, p := range parseOne(t, broken).said() {
				spoken++
				if said := p.String(); strings.Contains(said, planted[:4]) {
					t.Fatalf("seed %d, manifest %d, round %d: problem %q quotes a secret of\n%s", seed, i, n, said, broken)
				}
			}
		}
	}
	if spoken < 10_000 {
		t.Errorf("only %d problems and notes; the slips break too little", spoken)
	}
}

func FuzzNoSecretIsSaid(f *testing.F) {
	for _, text := range plantedManifests[:7] {
		for n := range 20 {
			f.Add([]byte(breakText(rand.New(rand.NewPCG(uint64(n), 2)), text)))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		// What another kind than a Secret has for a name or a kind may be said.
		if halfWritten(text, nil) != nil || !bytes.Contains(text, []byte("\nkind: Secret\n")) || bytes.Count(text, []byte("kind")) > 1 {
			return
		}
		for _, p := range parseOne(t, string(text)).said() {
			if strings.Contains(p.String(), planted[:4]) {
				t.Fatalf("problem %q quotes a secret", p)
			}
		}
	})
}

func TestAKeyThatStandsTwiceIsFoundHoweverItIsWritten(t *testing.T) {
	jsonSecret := func(data string) string {
		return "{\"apiVersion\": \"v1\", \"kind\": \"Secret\", \"metadata\": {\"name\": \"bad\"},\n\"stringData\": {\n" + data + "}}\n"
	}
	for _, tc := range []struct {
		name, text string
		line       int // 0: nothing stands twice
	}{
		{"JSON with a raw DEL", jsonSecret("\"a\": \"x\x7f\",\n\"b\": \"y\",\n\"a\": \"z\""), 5},
		{"JSON with a raw C1 character", jsonSecret("\"a\": \"x\u0081\",\n\"a\": \"z\""), 4},
		{"JSON with an escape in the key", jsonSecret("\"a\": \"x\",\n\"\\u0061\": \"z\""), 4},
		{"JSON with emoji in keys", jsonSecret("\"a\": \"\\ud83d\\ude00\\ud83d\",\n\"b\": \"\\\\ud83d\"\n"), 0},
		{"yes, on and true", secretYAML("stringData:\n  on: a\n  true: b\n"), 7},
		{"yes and a text true", secretYAML("stringData: {'true': a, \n  yes: b}\n"), 6},
		{"a number in two forms", secretYAML("stringData:\n  0x10: a\n  16: b\n"), 7},
		{"quoted and plain", secretYAML("stringData:\n  \"a\": a\n  a: b\n"), 7},
		{"by an alias", secretYAML("stringData:\n  x: &k a\n  a: b\n  *k : c\n"), 8},
		{"by a tag", secretYAML("stringData:\n  a: b\n  !!str a: c\n"), 7},
		{"quoted words are texts", secretYAML("stringData: {'on': a, 'true': b, \"yes\": c}\n"), 0},
		{"a merge that is overridden", secretYAML("stringData: {a: b}\nmetadata: {name: bad, labels: &l {a: b}, annotations: {<<: *l, a: c}}\n"), 6},
		{"a List's items", "apiVersion: v1\nkind: List\nitems: []\nitems:\n- " + strings.ReplaceAll(strings.TrimSpace(goodEndpoint), "\n", "\n  ") + "\n", 4},
		{"kind", "apiVersion: doorstep.dev/v1alpha1\nkind: WebhookEndpoint\nmetadata: {name: a}\nkind: Deployment\n", 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := parseOne(t, tc.text)
			var twice []Problem
			for _, p := range f.said() {
				if strings.Contains(p.Message, "stands twice") {
					twice = append(twice, p)
				}
			}
			switch {
			case tc.line == 0 && (len(twice) != 0 || len(f.claims) != 1):
				t.Errorf("problems %v, want nothing that stands twice", f.said())
			case tc.line != 0 && (len(twice) != 1 || twice[0].Line != tc.line):
				t.Errorf("problems %v, want that something stands twice in line %d", f.said(), tc.line)
			}
		})
	}
}

func TestAFileOfTinyThingsIsReadInNoTime(t *testing.T) {
	item := "- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: a}\n"
	for _, tc := range []struct {
		name, text      string
		problems, notes int
		want            string
	}{
		{"466,000 documents", strings.Repeat("---\na: 1\n", 466_000), 1, 0, "more than 2000 documents"},
		{"a List of 3,000 items", "apiVersion: v1\nkind: List\nitems:\n" + strings.Repeat(item, 3000), 1, 0, "more than 2000 documents"},
		{"1,500 documents of something else", strings.Repeat("---\na: 1\n", 1500), 0, maxNotes + 1, "1490 more notes"},
		{"1,500 documents that are bad", strings.Repeat("---\na: [\n", 1500), maxProblems + 1, 0, "1450 more problems"},
		{"an object with 1,500 bad fields", goodEndpoint + "  x" + strings.Join(strings.Split(strings.Repeat("a", 1500), ""), ": 1\n  y") + ": 1\n", 0, 0, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			begin := time.Now()
			f := parseOne(t, tc.text)
			if took := time.Since(begin); took > 5*time.Second {
				t.Errorf("took %v", took)
			}
			all := f.said()
			if len(f.problems) != tc.problems || len(f.notes) != tc.notes || len(all) > maxProblems+1 || !strings.Contains(all[len(all)-1].Message, tc.want) {
				t.Errorf("%d problems and %d notes, the last of all %q", len(f.problems), len(f.notes), all[len(all)-1])
			}
		})
	}
}

func TestAnObjectThatMeansToBeOursIsAProblemNotANote(t *testing.T) {
	policy := "apiVersion: doorstep.dev/v1alpha1\nkind: RetryPolicy\nmetadata: {name: a}\n"
	for _, tc := range []struct {
		name, old, new, field string
		broken                bool
	}{
		{"apiversion", "apiVersion", "apiversion", "apiversion", true},
		{"Kind", "kind", "Kind", "Kind", true},
		{"all keys in capitals", policy, strings.NewReplacer("apiVersion", "ApiVersion", "kind", "Kind", "metadata", "Metadata").Replace(policy), "ApiVersion", true},
		{"another domain", "doorstep.dev/", "doorstep.io/", "apiVersion", true},
		{"no group", "doorstep.dev/v1alpha1", "v1alpha1", "apiVersion", true},
		{"a kind in small letters", "RetryPolicy", "retrypolicy", "kind", true},
		{"both wrong", "doorstep.dev/v1alpha1\nkind: RetryPolicy", "v1\nkind: deliverypool", "apiVersion", true},
		{"another product's", "doorstep.dev/", "gateway.example.com/", "apiVersion", false},
		{"a Secret of no version", "doorstep.dev/v1alpha1\nkind: RetryPolicy", "core/v1\nkind: Secret", "apiVersion", true},
		{"a secret in small letters", "doorstep.dev/v1alpha1\nkind: RetryPolicy", "v1\nkind: secret", "kind", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := parseOne(t, strings.Replace(policy, tc.old, tc.new, 1))
			if len(f.notes) != 0 || len(f.problems) != 1 || f.problems[0].Field != tc.field || f.broken != tc.broken {
				t.Errorf("problems %v, notes %v, broken %t; want a problem of %s", f.problems, f.notes, f.broken, tc.field)
			}
		})
	}
}

func TestANumberThatIsNotWholeIsReportedAtItsField(t *testing.T) {
	f := parseOne(t, "apiVersion: doorstep.dev/v1alpha1\nkind: RetryPolicy\nmetadata: {name: a}\nspec:\n  backoff:\n    exponential:\n      initial: 1s\n      factor: 0.5\n      max: 1m\n      maxAttempts: 3\n")
	if len(f.said()) == 0 {
		t.Fatal("no problem")
	}
	for _, p := range f.said() {
		if p.Field != "spec.backoff.exponential.factor" || p.Line != 8 {
			t.Errorf("problem %q, want it at factor in line 8", p)
		}
	}
}

func TestWhatCanNeverBeReadIsToldAtOnce(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe.yaml")
	if err := makePipe(pipe); err != nil {
		t.Fatalf("make a pipe: %v", err)
	}
	for _, path := range []string{pipe, os.DevNull} {
		if err := CheckRoot(path); err == nil || !strings.Contains(err.Error(), path+": neither a folder nor a regular file") {
			t.Errorf("CheckRoot(%s) is %v", path, err)
		}
		s := newLoader(t, path).Load()
		if len(s.Problems) != 1 || s.Objects.Complete {
			t.Errorf("%s: problems %v, complete %t", path, s.Problems, s.Objects.Complete)
		}
	}
	for _, path := range []string{dir, filepath.Join(dir, "none"), write(t, dir, "a.yaml", goodEndpoint)} {
		if err := CheckRoot(path); err != nil {
			t.Errorf("CheckRoot(%s) is %v", path, err)
		}
	}
	// A pipe that takes a file's place after it was looked for is not waited on.
	if _, err := readFile(pipe); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("reading a pipe: %v", err)
	}
}

// A text whose values do not need escapes comes out as it went in.
func TestLargeManifestsThatPeopleHaveAreRead(t *testing.T) {
	raw := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("k"), 1<<20-10))
	var list strings.Builder
	list.WriteString("apiVersion: v1\nkind: List\nitems:\n")
	for i := range 1500 {
		fmt.Fprintf(&list, "- %s\n", strings.ReplaceAll(strings.TrimSpace(endpointYAML(fmt.Sprint("e", i))), "\n", "\n  "))
	}
	for name, text := range map[string]string{"a Secret of 1 MiB": secretYAML("data: {key: " + raw + "}\n"), "a List of 1,500": list.String()} {
		if f := parseOne(t, text); len(f.said()) != 0 || len(f.claims) == 0 {
			t.Errorf("%s: problems %v", name, f.said())
		}
	}
}

// What perhapsNoText passes over must be the same key after the conversion.
func TestAPlainKeyThatIsPassedOverStaysAsItIs(t *testing.T) {
	r := rand.New(rand.NewPCG(20261130, 3))
	const letters = "yYnNoOfFtTrRuUeEsSaAlLxXbB~.+-_0123456789in"
	words := []string{"12", "name", "kind", "true", "False", "OFF", "null", "yes", "0x1f", "1_000", "1e3", "010", ".inf", "9223372036854775808"}
	for range 20_000 {
		b := make([]byte, 1+r.IntN(7))
		for i := range b {
			b[i] = letters[r.IntN(len(letters))]
		}
		words = append(words, string(b))
	}
	passed := 0
	for _, word := range words {
		if perhapsNoText(word) {
			continue
		}
		passed++
		if b, err := yaml.YAMLToJSON([]byte(word + ": 0\n")); err != nil || string(b) != fmt.Sprintf("{%q:0}", word) {
			t.Errorf("the key %s becomes %s (%v)", word, b, err)
		}
	}
	if passed < 5000 {
		t.Errorf("%d of %d words are passed over", passed, len(words))
	}
}
