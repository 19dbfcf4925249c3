package manifest

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
)

// identity names an object.
type identity struct{ kind, namespace, name string }

// object is one that would be accepted.
type object struct {
	identity
	file string
	doc  document
	// content is the object validated and defaulted, as JSON, which takes a fifth of the
	// memory; sum is its hash.
	content []byte
	sum     [sha256.Size]byte
	typed   runtime.Object
}

// claim is an object's place in a file: accepted, or refused with its problems.
type claim struct {
	identity
	line     int
	object   *object // nil where it was refused
	problems []Problem
}

// file is what reading one manifest gave.
type file struct {
	path     string
	text     []byte
	claims   []claim
	problems []Problem // of no known object
	notes    []Problem
	// broken is set when a part could not be read: an object that is not among the
	// claims may be in the file all the same.
	broken bool
	// read counts the documents and the items of Lists.
	read int
	// clean is set when every object was accepted, so that the result holds as long
	// as the text does.
	clean bool
}

const apiVersion = "doorstep.dev/v1alpha1"

// kinds are the kinds that are read, by apiVersion and kind.
var kinds = map[string]func() runtime.Object{
	apiVersion + "/WebhookEndpoint": func() runtime.Object { return new(v1alpha1.WebhookEndpoint) },
	apiVersion + "/RetryPolicy":     func() runtime.Object { return new(v1alpha1.RetryPolicy) },
	apiVersion + "/DeliveryPool":    func() runtime.Object { return new(v1alpha1.DeliveryPool) },
	"v1/Secret":                     func() runtime.Object { return new(corev1.Secret) },
	"v1/ConfigMap":                  func() runtime.Object { return new(corev1.ConfigMap) },
}

// readFile reads a file of at most maxFileBytes that nobody writes to meanwhile.
// An error says in words why it could not.
func readFile(path string) ([]byte, error) {
	for range 3 {
		b, stable, err := readOnce(path)
		if err != nil {
			return nil, fmt.Errorf("can't be read: %s", unreadable(err))
		}
		if len(b) > maxFileBytes {
			return nil, fmt.Errorf("larger than %d MiB, so it is not read; split it", maxFileBytes>>20)
		}
		if stable {
			return b, nil
		}
	}
	return nil, fmt.Errorf("written to while it was read; it is read again when it has changed")
}

func readOnce(path string) (b []byte, stable bool, err error) {
	// Not blocking, and looked at again: a pipe may have taken the file's place.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = f.Close() }()
	before, err := f.Stat()
	if err == nil && !before.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}
	if err != nil {
		return nil, false, err
	}
	if b, err = io.ReadAll(io.LimitReader(f, maxFileBytes+1)); err != nil {
		return nil, false, err
	}
	after, err := f.Stat()
	return b, err == nil && sameState(before, after) && (after.Size() == int64(len(b)) || len(b) > maxFileBytes), err
}

// halfWritten says why a file's text looks like one that is being written, nil if
// it does not. former is its text before.
func halfWritten(text, former []byte) error {
	if len(bytes.TrimSpace(text)) == 0 {
		return fmt.Errorf("empty, as a half-written file is, so its objects are kept; to delete them, remove the file or leave a comment in it")
	}
	if len(text) < len(former) && bytes.HasPrefix(former, text) && text[len(text)-1] != '\n' && former[len(text)] != '\n' && former[len(text)] != '\r' {
		return fmt.Errorf("cut off in the middle of a line, so its objects are kept; write the whole file")
	}
	return nil
}

// parseFile reads the objects of a file's text and validates them, each against
// its former version where last has one.
func (l *Loader) parseFile(path string, text []byte) *file {
	f := &file{path: path, text: text, clean: true}
	chunks := splitDocuments(text)
	f.read = len(chunks)
	keys := keyResolver{}
	for _, c := range chunks {
		if f.read > maxObjects {
			break
		}
		doc, err := c.parse()
		if err != nil {
			f.fail(Problem{File: path, Line: err.line, Message: err.message})
			continue
		}
		l.readDocument(f, doc, doc.duplicates(keys), 0)
	}
	if f.read > maxObjects {
		f = &file{path: path, text: text}
		f.fail(Problem{File: path, Line: 1, Message: fmt.Sprintf("more than %d documents and items of Lists, so the file is not read; split it", maxObjects)})
		return f
	}
	f.problems = firstOf(f.problems, maxProblems, "problems in this file")
	f.notes = firstOf(f.notes, maxNotes, "notes about this file")
	for i := range f.claims {
		f.claims[i].problems = firstOf(f.claims[i].problems, maxPerObject, "problems of this object")
	}
	if n := len(f.claims); n > 0 && f.claims[n-1].object == nil && text[len(text)-1] != '\n' {
		// The last object is bad and its last line has no end: perhaps more was to come.
		f.broken = true
	}
	return f
}

// firstOf keeps the first n of a list, and says how many it left out.
func firstOf(list []Problem, n int, what string) []Problem {
	if len(list) <= n+1 {
		return list
	}
	more := list[n]
	more.Field, more.Message = "", fmt.Sprintf("%d more %s are not shown", len(list)-n, what)
	return append(list[:n:n], more)
}

// fail notes a problem of something whose identity is not known.
func (f *file) fail(p Problem) {
	f.problems = append(f.problems, p)
	f.broken, f.clean = true, false
}

// Bounds of one file: Lists within Lists, documents and items of Lists, and what is
// said of them.
const (
	maxNesting   = 4
	maxObjects   = 2_000
	maxProblems  = 50
	maxNotes     = 10
	maxPerObject = 10
)

func (l *Loader) readDocument(f *file, doc document, dups []duplicate, depth int) {
	at := func(field, message string) Problem {
		return Problem{File: f.path, Line: doc.at(field), Field: field, Message: message}
	}
	obj, ok := doc.value.(map[string]any)
	if !ok {
		if doc.value != nil {
			f.fail(at("", "not an object; a manifest has apiVersion, kind and metadata"))
		}
		return
	}
	if dup := typeTwice(obj, dups); dup != nil {
		f.fail(Problem{File: f.path, Line: dup.line, Message: "apiVersion, kind or items stands twice; keep one of the two"})
		return
	}
	version, kind, fault := typeOf(obj)
	switch {
	case fault == nil && kind == "":
		f.notes = append(f.notes, at("", "not a Kubernetes object, so it is passed over"))
		return
	case fault != nil:
		f.fail(at(fault.field, fault.message))
		return
	}
	if strings.HasSuffix(kind, "List") && (version == "v1" || version == apiVersion) {
		l.readList(f, doc, obj, kind, dups, depth)
		return
	}
	if kinds[version+"/"+kind] == nil {
		if own := ownKind(kind); own != "" {
			// It may be another product's, so that it is no reason to hold deletions.
			f.problems = append(f.problems, at("apiVersion", "a "+own+" of Doorstep has apiVersion "+apiVersion+"; write that, or keep other products' objects in another folder"))
			return
		}
		f.notes = append(f.notes, Problem{File: f.path, Line: doc.line, Kind: shownKind(kind), Message: "not a kind that Doorstep reads, so it is passed over"})
		return
	}
	l.readObject(f, doc, obj, kind, dups)
}

// typeTwice finds a key that stands twice in a Kubernetes object and decides what
// the rest is taken for, or, in a List, whether there is a rest.
func typeTwice(obj map[string]any, dups []duplicate) *duplicate {
	if obj["apiVersion"] == nil || obj["kind"] == nil {
		return nil
	}
	kind, _ := obj["kind"].(string)
	for i, dup := range dups {
		if dup.field == "apiVersion" || dup.field == "kind" || (dup.field == "items" && strings.HasSuffix(kind, "List")) {
			return &dups[i]
		}
	}
	return nil
}

// readList reads the items of a List, each as a document of its own.
func (l *Loader) readList(f *file, doc document, obj map[string]any, kind string, dups []duplicate, depth int) {
	items, ok := obj["items"].([]any)
	if !ok || depth >= maxNesting {
		f.fail(Problem{File: f.path, Line: doc.at("items"), Kind: shownKind(kind), Field: "items", Message: "must be a list of objects, not nested deeper than four Lists"})
		return
	}
	f.read += len(items)
	for i, item := range items {
		if f.read > maxObjects {
			return
		}
		prefix := fmt.Sprintf("items[%d]", i)
		d := document{value: item, line: doc.at(prefix), offset: doc.offset, last: doc.last}
		if doc.node != nil {
			_, list := child(doc.node, "items")
			if list != nil {
				_, d.node = child(list, fmt.Sprint(i))
			}
		}
		var own []duplicate
		for _, dup := range dups {
			if rest, ok := strings.CutPrefix(dup.field, prefix+"."); ok {
				own = append(own, duplicate{line: dup.line, field: rest})
			}
		}
		if m, ok := item.(map[string]any); ok && kind != "List" && m["kind"] == nil && m["apiVersion"] == nil {
			// The items of a typed list may leave out what the list says.
			m["apiVersion"], m["kind"] = obj["apiVersion"], strings.TrimSuffix(kind, "List")
		}
		l.readDocument(f, d, own, depth+1)
	}
}

// readObject validates one object of a kind that is read.
func (l *Loader) readObject(f *file, doc document, obj map[string]any, kind string, dups []duplicate) {
	id := identity{kind: kind, namespace: "default"}
	meta, _ := obj["metadata"].(map[string]any)
	id.name, _ = meta["name"].(string)
	if ns, ok := meta["namespace"].(string); ok && ns != "" {
		id.namespace = ns
	}
	at := func(field, message string) Problem {
		p := Problem{File: f.path, Line: doc.at(field), Kind: kind, Namespace: id.namespace, Name: id.name, Field: field, Message: message}
		if kind == "Secret" {
			p.Field = publicField(field)
			if len(validation.IsDNS1123Subdomain(id.name)) > 0 || len(validation.IsDNS1123Label(id.namespace)) > 0 {
				p.Namespace, p.Name = "", "" // no names, so perhaps values
			}
		}
		return p
	}
	if id.name == "" {
		f.fail(at("metadata.name", "required, as text; a manifest names its object"))
		return
	}
	if meta["namespace"] == nil {
		meta["namespace"] = id.namespace
	}
	c := claim{identity: id, line: doc.line}
	for _, dup := range dups {
		p := at(dup.field, "the key stands twice; keep one of the two")
		p.Line = dup.line
		c.problems = append(c.problems, p)
	}
	for _, bad := range l.validate(id, obj) {
		c.problems = append(c.problems, at(place(doc, bad), bad.message))
	}
	if len(c.problems) == 0 {
		o, err := newObject(id, f.path, doc, obj)
		if err != nil {
			// The schema takes what the type does not: a defect that a test looks for.
			c.problems = append(c.problems, at("", "does not fit its type"))
		} else {
			c.object = o
		}
	}
	f.clean = f.clean && c.object != nil
	f.claims = append(f.claims, c)
}

func (l *Loader) validate(id identity, obj map[string]any) []fault {
	switch id.kind {
	case "Secret":
		return validateSecret(obj)
	case "ConfigMap":
		return validateConfigMap(obj)
	}
	var old map[string]any
	if former := l.last[id]; former != nil {
		if err := utiljson.Unmarshal(former.content, &old); err != nil {
			old = nil // it was written by newObject, so this can't be
		}
	}
	return l.schemas[id.kind].validate(obj, old)
}

// place gives the field that a fault speaks of. A rule on a whole object has the
// path of the object; its message then begins with the field.
func place(doc document, bad fault) string {
	first, _, _ := strings.Cut(bad.message, " ")
	if bad.field == "" && strings.Contains(first, ".") && doc.has(first) {
		return first
	}
	return bad.field
}

func newObject(id identity, path string, doc document, obj map[string]any) (*object, error) {
	typed := kinds[obj["apiVersion"].(string)+"/"+id.kind]()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj, typed); err != nil {
		return nil, err
	}
	b, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	return &object{identity: id, file: path, doc: doc.keep(), content: bytes.Clone(b), sum: sha256.Sum256(b), typed: typed}, nil
}
