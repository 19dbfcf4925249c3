package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"
)

// outputs are the values of -o.
var outputs = []string{"table", "wide", "json", "yaml"}

func addOutputFlag(cmd *cobra.Command, output *string) {
	cmd.Flags().StringVarP(output, "output", "o", "table", "output: "+strings.Join(outputs, ", "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(outputs, cobra.ShellCompDirectiveNoFileComp))
}

// isText reports a table; it refuses what is no output at all.
func isText(output string) (bool, error) {
	switch output {
	case "table", "wide":
		return true, nil
	case "json", "yaml":
		return false, nil
	}
	return false, errors.New("the output must be one of " + strings.Join(outputs, ", "))
}

// printObject prints an answer of the API as JSON or YAML.
func printObject(w io.Writer, output string, v any) error {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	text := escape(buf.Bytes())
	if output == "yaml" {
		var err error
		if text, err = yaml.JSONToYAML(text); err != nil {
			return err
		}
	}
	_, err := w.Write(text)
	return err
}

// escape writes as \u escapes what JSON may hold as it is, and YAML may not or a terminal obeys.
func escape(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for _, r := range string(text) {
		if r >= 0x7f && r <= 0x9f || r == 0xfffe || r == 0xffff {
			out = fmt.Appendf(out, "\\u%04x", r)
		} else {
			out = utf8.AppendRune(out, r)
		}
	}
	return out
}

// tone colours a row of a table.
type tone string

const (
	plain tone = ""
	good  tone = "\x1b[32m"
	warn  tone = "\x1b[33m"
	bad   tone = "\x1b[31m"
	reset      = "\x1b[0m"
)

// table prints as kubectl does: upper-case headers, columns three spaces apart, "<none>" for nothing.
type table struct {
	header []string
	wide   []string // further columns of -o wide
	rows   [][]string
	tones  []tone
	// notes are lines below a row, by its index.
	notes map[int]string
}

func (t *table) add(c tone, cells ...string) {
	for i, cell := range cells {
		cells[i] = printable(cell)
		if cell == "" {
			cells[i] = "<none>"
		}
	}
	t.rows = append(t.rows, cells)
	t.tones = append(t.tones, c)
}

// note puts a line below the last row.
func (t *table) note(text string) {
	if t.notes == nil {
		t.notes = make(map[int]string)
	}
	t.notes[len(t.rows)-1] = "  " + printable(text)
}

func (t *table) print(w io.Writer, wide, colours bool) error {
	header := t.header
	if wide {
		header = append(header[:len(header):len(header)], t.wide...)
	}
	var buf bytes.Buffer
	tw := tabwriter.NewWriter(&buf, 6, 4, 3, ' ', 0)
	for _, row := range append([][]string{header}, t.rows...) {
		if _, err := fmt.Fprintln(tw, strings.Join(row[:len(header)], "\t")); err != nil {
			return err
		}
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for i, line := range strings.Split(strings.TrimSuffix(buf.String(), "\n"), "\n") {
		line = strings.TrimRight(line, " ")
		if colours && i > 0 && t.tones[i-1] != plain {
			line = string(t.tones[i-1]) + line + reset
		}
		if note := t.notes[i-1]; note != "" {
			line += "\n" + note
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

// printable makes control characters visible: ids, sources and answers of receivers come from strangers, and a
// terminal obeys what it is sent.
func printable(s string) string {
	var shown strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&shown, `\x%02x`, s[0])
		case !unicode.IsPrint(r):
			shown.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		default:
			shown.WriteRune(r)
		}
		s = s[size:]
	}
	return shown.String()
}

// age is how long ago a time was, as kubectl words it; empty for no time.
func age(now, t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return duration.HumanDuration(max(0, now.Sub(t)))
}

// until is when a time is: "in 5m", or "5m ago" for what is past; empty for no time.
func until(now, t time.Time) string {
	switch {
	case t.IsZero():
		return ""
	case t.After(now):
		return "in " + duration.HumanDuration(t.Sub(now))
	}
	return age(now, t) + " ago"
}

// number is n, and "" for 0 where nothing is worth a number.
func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}
