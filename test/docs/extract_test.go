package docs

import (
	"regexp"
	"strings"
	"testing"
)

// page is a Markdown file taken apart.
type page struct {
	name, text string
	// code is the text of all sh blocks; prose is everything outside of blocks.
	code, prose string
	blocks      []block
	// anchors are what a link to a heading names it by.
	anchors []string
}

// block is a fenced block.
type block struct {
	line     int // of its fence
	language string
	mark     mark
	text     string
}

// mark is what the comment above a block says of it: a verb, arguments, and key=value.
type mark struct {
	verb string
	args []string
}

func (m mark) has(arg string) bool {
	for _, a := range m.args {
		if a == arg {
			return true
		}
	}
	return false
}

func (m mark) value(key string) string {
	for _, a := range m.args {
		if v, ok := strings.CutPrefix(a, key+"="); ok {
			return v
		}
	}
	return ""
}

func (p page) runs() bool {
	for _, b := range p.blocks {
		if b.mark.verb == "test" {
			return true
		}
	}
	return false
}

var (
	comment = regexp.MustCompile(`^<!-- (test|output|file)\b\s*(.*?)\s*-->$`)
	heading = regexp.MustCompile(`^#{1,6} (.*)$`)
)

// readPage takes a page apart. A block's lines lose the indentation of its fence.
func readPage(name, text string) page {
	p := page{name: name, text: text}
	var open *block
	var indent string
	var next mark
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case open != nil && trimmed == "```":
			p.blocks = append(p.blocks, *open)
			if open.language == "sh" {
				p.code += strings.ReplaceAll(open.text, "\\\n", " ")
			}
			open = nil
		case open != nil:
			open.text += strings.TrimPrefix(line, indent) + "\n"
		case strings.HasPrefix(trimmed, "```"):
			indent, _, _ = strings.Cut(line, "```")
			open = &block{line: i + 1, language: strings.TrimPrefix(trimmed, "```"), mark: next}
			next = mark{}
		default:
			p.prose += line + "\n"
			if m := comment.FindStringSubmatch(trimmed); m != nil {
				next = mark{verb: m[1], args: strings.Fields(m[2])}
			}
			if m := heading.FindStringSubmatch(line); m != nil {
				p.anchors = append(p.anchors, anchor(m[1]))
			}
		}
	}
	return p
}

var notInAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)

// anchor is a heading's name in links, as GitHub makes it.
func anchor(heading string) string {
	return strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

func TestReadPage(t *testing.T) {
	p := readPage("x", "# A `b`, c\n<!-- test exit=2 -->\n```sh\ndoorstep x \\\n  -y\n```\n1. q\n\n   ```yaml\n   a:\n     b\n   ```\n")
	if len(p.blocks) != 2 || p.blocks[0].mark.value("exit") != "2" || p.blocks[1].text != "a:\n  b\n" || p.blocks[1].mark.verb != "" {
		t.Errorf("the blocks are read as %+v", p.blocks)
	}
	if len(p.anchors) != 1 || p.anchors[0] != "a-b-c" {
		t.Errorf("the anchors are %q", p.anchors)
	}
	if a := anchor("`--dev` and `--forward-to`"); a != "--dev-and---forward-to" {
		t.Errorf("anchor = %q", a)
	}
}
