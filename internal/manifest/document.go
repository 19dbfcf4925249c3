package manifest

import (
	"bytes"
	"encoding/json"

	yamlv3 "go.yaml.in/yaml/v3"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// document is one YAML or JSON document. Its value is what kubectl would send
// (sigs.k8s.io/yaml, so YAML 1.1 booleans and all); its node only gives lines.
type document struct {
	value any
	node  *yamlv3.Node // nil where the lines are not known, or source has to be read again for them
	line  int          // of the document's first content
	// source is the text of a document whose nodes were let go of: they take twenty times
	// its memory, and are only asked for when there is a problem to tell.
	source *chunk
	// offset is added to the node's lines; last is the document's last line. YAML
	// counts more characters as ends of lines than an editor does.
	offset, last int
}

// chunk is the text of one document within a file.
type chunk struct {
	text []byte
	line int // of its first line
}

// splitDocuments cuts a file at its document markers, so that a document that
// can't be parsed takes none of the others with it. A marker at the start of a
// line ends a document whatever stands around it (YAML 1.2.2, §9.1.2). What comes
// before the first marker without being content stays with the first document.
func splitDocuments(file []byte) []chunk {
	file = bytes.TrimPrefix(file, []byte("\xef\xbb\xbf"))
	var out []chunk
	start, startLine, content := 0, 1, false
	cut := func(end, nextLine int) {
		if content {
			out = append(out, chunk{text: file[start:end], line: startLine})
		}
		start, startLine, content = end, nextLine, false
	}
	line := 1
	for at := 0; at < len(file); line++ {
		end := at + bytes.IndexByte(file[at:], '\n') + 1
		if end == at {
			end = len(file)
		}
		text := bytes.TrimRight(file[at:end], "\r\n")
		switch {
		case isMarker(text, "---"):
			cut(at, line)
			content = hasContent(text[3:])
		case isMarker(text, "..."):
			cut(end, line+1)
		case hasContent(text) && text[0] != '%':
			content = true
		}
		at = end
	}
	cut(len(file), line)
	return out
}

func isMarker(line []byte, marker string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(marker))
	return ok && (len(rest) == 0 || rest[0] == ' ' || rest[0] == '\t')
}

// hasContent reports whether a line holds more than white space and a comment.
func hasContent(line []byte) bool {
	line = bytes.TrimSpace(line)
	return len(line) > 0 && line[0] != '#'
}

// parse reads one document.
func (c chunk) parse() (document, *syntaxError) {
	d := document{line: c.firstContent(), offset: c.line - 1, last: c.last(), source: &c}
	if err := c.tooMany(); err != nil {
		return d, err
	}
	text := c.text
	if json.Valid(text) {
		d.node = jsonNode(text)
	} else {
		converted, err := c.convert(&d)
		if err != nil {
			return d, err
		}
		text = converted
	}
	if err := utiljson.Unmarshal(text, &d.value); err != nil {
		return d, &syntaxError{line: d.lineOf(beyondNumbers), message: "the document holds a number that is too large; put quotes around it if it is a text"}
	}
	return d, nil
}

// keep is the document as it is remembered: without what source can give again.
func (d document) keep() document {
	d.value = nil // the content stays, its source need not
	if d.source != nil {
		d.node = nil
	}
	return d
}

// nodes gives the document's nodes, nil where the lines are not known.
func (d document) nodes() *yamlv3.Node {
	if d.node != nil || d.source == nil {
		return d.node
	}
	again, _ := d.source.parse() // it was right when it was first read
	return again.node
}

// convert gives a YAML document as JSON, and sets the nodes of d.
func (c chunk) convert(d *document) ([]byte, *syntaxError) {
	toJSON := yaml.YAMLToJSON
	var root yamlv3.Node
	switch err := yamlv3.Unmarshal(c.text, &root); {
	case err != nil && aliasLike.Match(c.text):
		return nil, c.syntaxError(*d, err)
	case err != nil:
		// Where only the other parser can read it, that one must look for keys that
		// stand twice. With no aliases there is nothing to multiply.
		toJSON = yaml.YAMLToJSONStrict
	case len(root.Content) > 0:
		d.node = root.Content[0]
		if err := d.checkNodes(); err != nil {
			return nil, err
		}
	}
	converted, err := toJSON(c.text)
	if err != nil {
		return nil, c.syntaxError(*d, err)
	}
	return converted, nil
}

// last is the line of the last character that is no end of a line.
func (c chunk) last() int {
	return c.line + bytes.Count(bytes.TrimRight(c.text, "\r\n"), []byte("\n"))
}

func (c chunk) firstContent() int {
	line := c.line
	for text := range bytes.Lines(c.text) {
		trimmed := bytes.TrimRight(text, "\r\n")
		if isMarker(trimmed, "---") {
			trimmed = trimmed[3:]
		}
		if hasContent(trimmed) && trimmed[0] != '%' {
			return line
		}
		line++
	}
	return c.line
}
