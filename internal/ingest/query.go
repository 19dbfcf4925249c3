package ingest

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Pages hold defaultLimit items unless asked for another number, and never more than maxLimit. A page looks at no more
// than maxScan stored items: a filter that matches little gives short pages and a cursor.
const (
	defaultLimit = 100
	maxLimit     = 500
	maxScan      = 2000
)

// query reads the parameters of a request. One that isn't known is refused: a misspelt filter must not list everything.
func query(r *http.Request, known ...string) (url.Values, *Problem) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, badRequest("query", "The query string is malformed.")
	}
	for name, v := range values {
		if !slices.Contains(known, name) {
			return nil, badRequest("query", "A parameter is not known here; this path takes "+strings.Join(known, ", ")+".")
		}
		if len(v) > 1 {
			return nil, badRequest(name, "The parameter was given more than once; send it once.")
		}
	}
	return values, nil
}

func limitOf(v url.Values) (int, *Problem) {
	text := v.Get("limit")
	if text == "" {
		return defaultLimit, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxLimit {
		return 0, badRequest("limit", "The limit is a number from 1 to "+strconv.Itoa(maxLimit)+".")
	}
	return n, nil
}

// Cursors are opaque to callers: the kind of list and where to go on, so that one can't be taken to another list.
func encodeCursor(parts ...string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strings.Join(parts, "\n")))
}

// decodeCursor gives the parts of a cursor of a kind; nil if there is none.
func decodeCursor(v url.Values, kind string, parts int) ([]string, *Problem) {
	return decodeCursorText(v.Get("cursor"), kind, parts)
}

func decodeCursorText(text, kind string, parts int) ([]string, *Problem) {
	if text == "" {
		return nil, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	got := strings.Split(string(raw), "\n")
	if err != nil || len(got) != parts+1 || got[0] != kind {
		return nil, errCursor
	}
	return got[1:], nil
}

var errCursor = badRequest("cursor", "The cursor is not one that this list gave; begin again without it.")
