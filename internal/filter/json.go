package filter

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/doorstep-dev/doorstep/internal/event"
)

var errData = errors.New("event.data can't be read: it is not JSON as its content type says, or it is nested too deep")

// decode gives an event's data as Go values: JSON as objects, lists, texts, bool, nil and numbers; other text as a text, and
// anything else as bytes.
func decode(d event.Data) (any, error) {
	switch {
	case d.Null():
		return nil, nil
	case d.JSON:
		return decodeJSON(d.Bytes)
	case isText(d.MediaType) && utf8.Valid(d.Bytes):
		return string(d.Bytes), nil
	}
	return d.Bytes, nil
}

// decodeJSON takes the last of members that stand twice, and U+FFFD for half a surrogate pair. encoding/json refuses what
// is nested more than 10,000 deep.
func decodeJSON(b []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(b))
	decoder.UseNumber()
	var v any
	if err := decoder.Decode(&v); err != nil {
		return nil, errData
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, errData
	}
	return exact(v), nil
}

// exact replaces the numbers and maps in a decoded value, in place.
func exact(v any) any {
	switch v := v.(type) {
	case json.Number:
		return number(string(v))
	case map[string]any:
		for name, member := range v {
			v[name] = exact(member)
		}
		return newObject(v)
	case []any:
		for i, element := range v {
			v[i] = exact(element)
		}
	}
	return v
}

// number is an int64 where the text is an integer in plain digits, or a uint64 where it is too large for that; and else
// the nearest float64, which may be infinite.
func number(text string) any {
	if !strings.ContainsAny(text, ".eE") {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n
		}
		if n, err := strconv.ParseUint(text, 10, 64); err == nil {
			return n
		}
	}
	f, _ := strconv.ParseFloat(text, 64) // the only error left is one of range, with ±Inf
	return f
}

// isText reports whether a media type is text that people read.
func isText(media string) bool {
	return strings.HasPrefix(media, "text/") || strings.HasSuffix(media, "/xml") || strings.HasSuffix(media, "+xml") ||
		media == "application/x-www-form-urlencoded" || media == "application/yaml" || media == "application/x-ndjson"
}
