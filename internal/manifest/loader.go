package manifest

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/config/crd"
	"github.com/doorstep-dev/doorstep/internal/compile"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

// Loader reads one file or folder again and again, and remembers the last good
// version of each object. It is not safe for concurrent use.
type Loader struct {
	root    string
	skip    []string
	schemas map[string]*schema
	// last are the last good versions, by which edits are measured.
	last map[identity]*object
	// files are the results of the last Load, by path.
	files map[string]*file
}

// Snapshot is what one look at the files gave. It is not to be changed.
type Snapshot struct {
	Objects compile.Objects
	// Problems and Notes are sorted by file and line. A note is about something that
	// is passed over on purpose.
	Problems []Problem
	Notes    []Problem
	// Digest is equal for snapshots that say the same.
	Digest string

	objects map[identity]*object
}

// builtIn are the schemas of this build, compiled once.
var builtIn = sync.OnceValues(func() (map[string]*schema, error) { return loadSchemas(crd.Files) })

// NewLoader makes a Loader for a file or a folder, which need not exist yet. The
// folders of skip are passed over, such as a data folder that lies within root.
func NewLoader(root string, skip ...string) (*Loader, error) {
	schemas, err := builtIn()
	if err != nil {
		return nil, err
	}
	return &Loader{root: filepath.Clean(root), skip: skip, schemas: schemas, last: map[identity]*object{}, files: map[string]*file{}}, nil
}

// Load reads everything and says what is there now. It never fails as a whole:
// what can't be read is among the Problems, and makes the look incomplete.
func (l *Loader) Load() Snapshot { return l.load(l.walk()) }

func (l *Loader) walk() tree { return walk(l.root, l.skip) }

func (l *Loader) load(t tree) Snapshot {
	m := &merge{Loader: l, objects: map[identity]*object{}, complete: !t.incomplete}
	m.problems = append(m.problems, t.problems...)
	files := make(map[string]*file, len(t.files))
	for _, tf := range t.files {
		f := l.readManifest(tf.path)
		files[f.path] = f
		m.add(f)
	}
	if len(t.files) == 0 && !t.incomplete {
		m.complete = false
		m.problems = append(m.problems, Problem{File: l.root,
			Message: "no manifests (*.yaml, *.yml, *.json) are here; endpoints of the last plan are held, not deleted: to delete them all, leave one file with a comment"})
	}
	m.settle()
	m.keepUnread(files, t.incomplete && len(t.folders) > 0)
	l.files, l.last = files, m.memory()
	return m.snapshot()
}

// memory is what the next look measures edits by: what is in force, and, while the
// look is incomplete, also what was in force before. A folder that is away for a
// moment so does not come back without its past.
func (m *merge) memory() map[identity]*object {
	if m.complete {
		return m.objects
	}
	out := maps.Clone(m.last)
	maps.Copy(out, m.objects)
	return out
}

// readManifest reads one file, or takes the result of the last time where nothing
// about it can have changed.
func (l *Loader) readManifest(path string) *file {
	former := l.files[path]
	var formerText []byte
	if former != nil {
		formerText = former.text
	}
	text, err := readFile(path)
	if err == nil {
		if former != nil && former.clean && bytes.Equal(text, formerText) {
			return former
		}
		err = halfWritten(text, formerText)
	}
	if err != nil {
		// The former text stays the measure until there is a whole new one.
		return &file{path: path, text: formerText, broken: true, problems: []Problem{{File: path, Message: err.Error()}}}
	}
	return l.parseFile(path, text)
}

// merge makes one set of objects of many files.
type merge struct {
	*Loader
	objects  map[identity]*object
	claims   []located
	refused  []plan.EndpointKey
	problems []Problem
	notes    []Problem
	complete bool
}

// located is a claim with its file.
type located struct {
	claim
	file string
}

func (m *merge) add(f *file) {
	m.problems = append(m.problems, f.problems...)
	m.notes = append(m.notes, f.notes...)
	if f.broken {
		m.complete = false
	}
	for _, c := range f.claims {
		m.claims = append(m.claims, located{c, f.path})
	}
}

// settle decides, for each identity, which place holds it: where it came from
// before, else the first that is good, else the first. Other places are reported.
func (m *merge) settle() {
	byID := make(map[identity][]located)
	for _, c := range m.claims {
		byID[c.identity] = append(byID[c.identity], c)
	}
	for id, claims := range byID {
		chosen := claims[m.choose(id, claims)]
		if chosen.object != nil {
			m.objects[id] = chosen.object
		} else {
			m.refuse(chosen)
		}
		for _, c := range claims {
			if c.file == chosen.file && c.line == chosen.line {
				continue
			}
			m.problems = append(m.problems, c.problems...)
			m.problems = append(m.problems, Problem{
				File: c.file, Line: c.line, Kind: id.kind, Namespace: id.namespace, Name: id.name, Field: "metadata.name",
				Message: fmt.Sprintf("the same object is in %s:%d, which holds; remove one of the two", chosen.file, chosen.line),
			})
		}
	}
}

func (m *merge) choose(id identity, claims []located) int {
	if former := m.last[id]; former != nil {
		if i := slices.IndexFunc(claims, func(c located) bool { return c.file == former.file }); i >= 0 {
			return i
		}
	}
	return max(0, slices.IndexFunc(claims, func(c located) bool { return c.object != nil }))
}

// refuse leaves an object's former version in force. Where there is none, an
// endpoint is passed on as refused (the former plan may know it), and of anything
// else it is unknown what it said: the look is incomplete.
func (m *merge) refuse(c located) {
	former := m.last[c.identity]
	for _, p := range c.problems {
		p.Kept = former != nil
		m.problems = append(m.problems, p)
	}
	switch {
	case former != nil:
		m.objects[c.identity] = former
	case c.kind == compile.KindEndpoint:
		m.refused = append(m.refused, plan.EndpointKey{Namespace: c.namespace, Name: c.name})
	default:
		m.complete = false
	}
}

// keepUnread keeps former objects that may still be there: those of files of which
// a part could not be read, and, where whole folders could not be listed, those of
// files that were not found.
func (m *merge) keepUnread(files map[string]*file, unlisted bool) {
	for id, o := range m.last {
		if m.objects[id] != nil {
			continue
		}
		f := files[o.file]
		if (f != nil && f.broken) || (f == nil && unlisted) {
			m.objects[id] = o
		}
	}
}

func (m *merge) snapshot() Snapshot {
	s := Snapshot{Problems: m.problems, Notes: m.notes, objects: m.objects}
	s.Objects.Complete = m.complete
	s.Objects.Refused = m.refused
	slices.SortFunc(s.Objects.Refused, plan.EndpointKey.Compare)
	slices.SortStableFunc(s.Problems, compareProblems)
	slices.SortStableFunc(s.Notes, compareProblems)

	ordered := make([]*object, 0, len(m.objects))
	for _, o := range m.objects {
		ordered = append(ordered, o)
	}
	slices.SortFunc(ordered, func(a, b *object) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	digest := sha256.New()
	for _, o := range ordered {
		_, _ = fmt.Fprintf(digest, "%q %s:%d %x\n", o.identity, o.file, o.doc.line, o.sum)
		switch v := o.typed.(type) {
		case *v1alpha1.WebhookEndpoint:
			s.Objects.Endpoints = append(s.Objects.Endpoints, *v)
		case *v1alpha1.RetryPolicy:
			s.Objects.RetryPolicies = append(s.Objects.RetryPolicies, *v)
		case *v1alpha1.DeliveryPool:
			s.Objects.Pools = append(s.Objects.Pools, *v)
		case *corev1.Secret:
			s.Objects.Secrets = append(s.Objects.Secrets, *v)
		case *corev1.ConfigMap:
			s.Objects.ConfigMaps = append(s.Objects.ConfigMaps, *v)
		}
	}
	_, _ = fmt.Fprintf(digest, "%t %q\n", s.Objects.Complete, s.Objects.Refused)
	for _, p := range slices.Concat(s.Problems, s.Notes) {
		_, _ = fmt.Fprintln(digest, p.String())
	}
	s.Digest = hex.EncodeToString(digest.Sum(nil))
	return s
}

// Locate words a problem that compiling found as one of the file it comes from.
// An object that no file holds, such as a generated Secret, has no line.
func (s Snapshot) Locate(p compile.Problem) Problem {
	out := Problem{Kind: p.Kind, Namespace: p.Namespace, Name: p.Name, Field: p.Field, Message: p.Message + " [" + p.Reason + "]"}
	if o := s.objects[identity{p.Kind, p.Namespace, p.Name}]; o != nil {
		out.File, out.Line = o.file, o.doc.at(p.Field)
	}
	return out
}
