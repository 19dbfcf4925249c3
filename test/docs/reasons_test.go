package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Every reason of a condition is explained in a table of the docs whose first column is headed "reason of …", and every
// reason that such a table names is one.
func TestReasonsAreExplained(t *testing.T) {
	explained := map[string]string{}
	for name, p := range pages(t) {
		for _, reason := range tableReasons(p.prose) {
			explained[reason] = name
		}
	}
	known := reasons(t)
	for reason, constant := range known {
		if explained[reason] == "" {
			t.Errorf("%s (%s) is explained in no table of the docs", reason, constant)
		}
	}
	for reason, page := range explained {
		if known[reason] == "" {
			t.Errorf("%s: the reason %s does not exist", page, reason)
		}
	}
}

// Of a table its first column counts, and of that what is set as code.
func TestTableReasons(t *testing.T) {
	const text = "| reason of x | y |\n|---|---|\n| `A`, `B` | `C` |\n| `D` (`e`) | |\n\n| other | |\n|---|---|\n| `F` | |\n"
	if got := strings.Join(tableReasons(text), " "); got != "A B D e" {
		t.Errorf("found %s", got)
	}
}

// tableReasons are what stands as code in the first columns of tables of reasons.
func tableReasons(prose string) (out []string) {
	within := false
	for line := range strings.Lines(prose) {
		cells := strings.SplitN(strings.TrimSpace(line), "|", 3)
		switch {
		case len(cells) < 3 || cells[0] != "":
			within = false
		case strings.HasPrefix(strings.TrimSpace(cells[1]), "reason of "):
			within = true
		case within:
			for _, span := range codeSpan.FindAllString(cells[1], -1) {
				out = append(out, strings.Trim(span, "`"))
			}
		}
	}
	return out
}

// reasons are the constants of the API that are reasons, by their values.
func reasons(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "api/v1alpha1/conditions.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Reason") {
			return true
		}
		value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		out[value] = spec.Names[0].Name
		return true
	})
	if len(out) < 40 {
		t.Fatalf("only %d reasons were found", len(out))
	}
	return out
}
