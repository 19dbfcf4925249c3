package manifest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/compile"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

// edit is one change of a folder and what is to be seen after it.
type edit struct {
	do       func(t *testing.T, dir string)
	restart  bool
	want     string // the endpoints in force
	complete bool
	refused  int
	problem  string // part of one problem; empty: there is none
	kept     bool   // that problem says that the former version stays
}

func put(name, text string) func(*testing.T, string) {
	return func(t *testing.T, dir string) { write(t, dir, name, text) }
}

func remove(name string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAbsenceIsNotDeletion(t *testing.T) {
	const bad = "  maxInFlight: 0\n"
	two := endpointYAML("a") + "---\n" + endpointYAML("b")
	start := edit{do: func(t *testing.T, dir string) {
		write(t, dir, "ab.yaml", two)
		write(t, dir, "c.yaml", endpointYAML("c"))
	}, want: "a b c", complete: true}
	for _, tc := range []struct {
		name  string
		edits []edit
	}{
		{"a file that is removed is a deletion", []edit{start, {do: remove("c.yaml"), want: "a b", complete: true}}},
		{"so is a document that is removed", []edit{start, {do: put("ab.yaml", endpointYAML("a")), want: "a c", complete: true}}},
		{"so is a file of which a comment is left", []edit{start, {do: put("c.yaml", "# none\n"), want: "a b", complete: true}}},
		{"a refused edit leaves the former version", []edit{start,
			{do: put("c.yaml", endpointYAML("c")+bad), want: "a b c", complete: true, problem: "spec.maxInFlight", kept: true},
			{do: put("c.yaml", endpointYAML("c")), want: "a b c", complete: true}}},
		{"an edit of what can't be changed leaves the former version", []edit{start,
			{do: put("c.yaml", endpointYAML("c")+"  poolRef: {name: big, namespace: infra}\n"), want: "a b c", complete: true, problem: "poolRef can't be added", kept: true}}},
		{"made anew, it may differ in what can't be changed", []edit{start,
			{do: remove("c.yaml"), want: "a b", complete: true},
			{do: put("c.yaml", endpointYAML("c")+"  poolRef: {name: big, namespace: infra}\n"), want: "a b c", complete: true}}},
		{"a file that stops parsing keeps its objects", []edit{start,
			{do: put("ab.yaml", "a: [\n"), want: "a b c", problem: "not valid YAML"},
			{do: put("ab.yaml", two), want: "a b c", complete: true}}},
		{"a document that stops parsing keeps its object, others go on", []edit{start,
			{do: put("ab.yaml", endpointYAML("d")+"---\na: [\n"), want: "a b c d", problem: "not valid YAML"}}},
		{"an object that loses its name keeps running", []edit{start,
			{do: put("c.yaml", strings.Replace(endpointYAML("c"), "name: c", "nam: c", 1)), want: "a b c", problem: "metadata.name"}}},
		{"an object that loses its kind keeps running", []edit{start,
			{do: put("c.yaml", strings.Replace(endpointYAML("c"), "kind: WebhookEndpoint\n", "", 1)), want: "a b c", problem: "kind: required"}}},
		{"an empty file is half-written", []edit{start,
			{do: put("ab.yaml", ""), want: "a b c", problem: "half-written"},
			{do: put("ab.yaml", " \n"), want: "a b c", problem: "half-written"},
			{do: put("ab.yaml", two), want: "a b c", complete: true}}},
		{"a file cut off in a line is half-written, for as long as it is", []edit{start,
			{do: put("ab.yaml", two[:len(endpointYAML("a"))-5]), want: "a b c", problem: "cut off"},
			{do: remove("c.yaml"), want: "a b", problem: "cut off"},
			{do: put("ab.yaml", two), want: "a b", complete: true}}},
		{"a file cut off in a bad object is half-written, also to a new process", []edit{start,
			{restart: true, do: put("ab.yaml", two[:strings.Index(two, "spec:")+5]), want: "c", refused: 1, problem: "spec"}}},
		{"a file that grows too large keeps its objects", []edit{start,
			{do: put("ab.yaml", "#"+strings.Repeat("x", maxFileBytes)+"\n"), want: "a b c", problem: "4 MiB"}}},
		{"a file that can't be read keeps its objects", []edit{start,
			{do: func(t *testing.T, dir string) {
				remove("c.yaml")(t, dir)
				if err := os.Symlink("nowhere.yaml", filepath.Join(dir, "c.yaml")); err != nil {
					t.Fatal(err)
				}
			}, want: "a b c", problem: "can't be read"}}},
		{"a folder that is away holds, and comes back as it was", []edit{start,
			{do: func(t *testing.T, dir string) { rename(t, dir, dir+".away") }, problem: "held, not deleted"},
			{do: func(t *testing.T, dir string) {
				rename(t, dir+".away", dir)
				write(t, dir, "c.yaml", endpointYAML("c")+bad)
			}, want: "a b c", complete: true, problem: "spec.maxInFlight", kept: true}}},
		{"an emptied folder holds", []edit{start,
			{do: func(t *testing.T, dir string) { remove("ab.yaml")(t, dir); remove("c.yaml")(t, dir) }, problem: "no manifests"}}},
		{"one broken file of many holds what is deleted elsewhere", []edit{start,
			{do: func(t *testing.T, dir string) { put("ab.yaml", "a: [\n")(t, dir); remove("c.yaml")(t, dir) }, want: "a b", problem: "not valid YAML"}}},
		{"a new process finds an empty folder", []edit{start,
			{restart: true, do: func(t *testing.T, dir string) { remove("ab.yaml")(t, dir); remove("c.yaml")(t, dir) }, problem: "no manifests"}}},
		{"a new process finds a broken file", []edit{start,
			{restart: true, do: put("ab.yaml", "a: [\n"), want: "c", problem: "not valid YAML"}}},
		{"a new process finds a refused endpoint, which is known by its name", []edit{start,
			{restart: true, do: put("c.yaml", endpointYAML("c")+bad), want: "a b", complete: true, refused: 1, problem: "spec.maxInFlight"}}},
		{"a new process finds a refused pool, of which nothing is known", []edit{start,
			{restart: true, do: put("p.yaml", "apiVersion: doorstep.dev/v1alpha1\nkind: DeliveryPool\nmetadata: {name: default}\nspec: {suspend: 1}\n"), want: "a b c", problem: "spec.suspend"}}},
		{"an object that moves to another file stays", []edit{start,
			{do: func(t *testing.T, dir string) { remove("c.yaml")(t, dir); put("sub/z.yml", endpointYAML("c"))(t, dir) }, want: "a b c", complete: true}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "manifests")
			l := newLoader(t, dir)
			for i, e := range tc.edits {
				e.do(t, dir)
				if e.restart {
					l = newLoader(t, dir)
				}
				s := l.Load()
				if names(s) != e.want || s.Objects.Complete != e.complete || len(s.Objects.Refused) != e.refused {
					t.Errorf("edit %d: endpoints %q complete %t refused %v, want %q %t and %d (problems %v)",
						i, names(s), s.Objects.Complete, s.Objects.Refused, e.want, e.complete, e.refused, s.Problems)
				}
				if (e.problem == "") != (len(s.Problems) == 0) {
					t.Errorf("edit %d: problems %v, want one with %q", i, s.Problems, e.problem)
				} else if e.problem != "" && (!strings.Contains(s.Problems[0].String(), e.problem) || s.Problems[0].Kept != e.kept) {
					t.Errorf("edit %d: problem %q, want %q (kept %t)", i, s.Problems[0], e.problem, e.kept)
				}
			}
		})
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// TestOnlyARealDeletionEndsInATombstone runs loader and compiler together, with
// the plan as the only memory over a restart.
func TestOnlyARealDeletionEndsInATombstone(t *testing.T) {
	dir, data := filepath.Join(t.TempDir(), "manifests"), t.TempDir()
	write(t, dir, "ab.yaml", endpointYAML("a")+"---\n"+endpointYAML("b"))
	write(t, dir, "c.yaml", endpointYAML("c"))
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	l, first := newLoader(t, dir), true
	// step looks twice, an hour apart, as a process does that goes on.
	step := func() *plan.Plan {
		t.Helper()
		var p *plan.Plan
		for range 2 {
			previous, err := ReadPlan(data)
			if err != nil {
				t.Fatal(err)
			}
			in := l.Load().Objects
			add, _, err := EnsureSigningKeys(data, in, previous)
			if err != nil {
				t.Fatal(err)
			}
			in.Secrets = append(in.Secrets, add...)
			now = now.Add(time.Hour)
			p = compile.Compile(in, previous, now, compile.Options{FirstLook: first}).Plan
			first = false
			if err := WritePlan(data, p); err != nil {
				t.Fatal(err)
			}
		}
		return p
	}
	restart := func() { l, first = newLoader(t, dir), true }
	check := func(when string, p *plan.Plan, endpoints, absent, tombstones int) {
		t.Helper()
		if len(p.Endpoints) != endpoints || len(p.Absent) != absent || len(p.Tombstones) != tombstones {
			t.Errorf("%s: %d endpoints, %d absent, %d tombstones; want %d, %d, %d", when,
				len(p.Endpoints), len(p.Absent), len(p.Tombstones), endpoints, absent, tombstones)
		}
	}
	check("at first", step(), 3, 0, 0)
	write(t, dir, "ab.yaml", "")
	check("after a truncation", step(), 3, 0, 0)
	restart()
	check("after a truncation and a restart", step(), 1, 2, 0)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	check("with the folder gone", step(), 0, 3, 0)
	write(t, dir, "ab.yaml", endpointYAML("a")+"  maxInFlight: 0\n---\n"+endpointYAML("b"))
	write(t, dir, "c.yaml", endpointYAML("c"))
	restart()
	p := step()
	check("with one object refused", p, 2, 1, 0)
	write(t, dir, "ab.yaml", endpointYAML("a"))
	p = step()
	check("with one document deleted", p, 2, 0, 1)
	if p.Tombstones[0].Name != "b" {
		t.Errorf("deleted is %s, want b", p.Tombstones[0])
	}
}
