package ingest

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	kjson "sigs.k8s.io/json"
)

const (
	// maxActionBytes bounds the body of an action; maxSelectionBytes that of a replay by selection, which may list ids.
	maxActionBytes    = 4 << 10
	maxSelectionBytes = 64 << 10
)

// readAction reads the JSON object of an action into v; no body is the empty object. What v doesn't know is refused.
func (s *Server) readAction(r *http.Request, v any) *Problem {
	if _, problem := query(r); problem != nil {
		return problem
	}
	return s.readObject(r, maxActionBytes, v)
}

func (s *Server) readObject(r *http.Request, limit int, v any) *Problem {
	body, held, problem := s.readBody(r, limit)
	defer s.bodies.give(held)
	body = bytes.TrimSpace(body)
	if problem != nil || len(body) == 0 {
		return problem
	}
	if body[0] != '{' {
		return badRequest("body", "The body is not one JSON object.")
	}
	strict, err := kjson.UnmarshalStrict(body, v)
	if err == nil && len(strict) > 0 {
		err = strict[0]
	}
	if err != nil {
		return objectProblem(err)
	}
	if reasoned, ok := v.(interface{ reason() string }); ok {
		return checkReason(reasoned.reason())
	}
	return nil
}

// objectProblem words what is wrong with a JSON object.
func objectProblem(err error) *Problem {
	var (
		wrong  *json.UnmarshalTypeError
		member kjson.FieldError
		moment *time.ParseError
	)
	switch {
	case errors.As(err, &wrong) && wrong.Field != "":
		return badRequest(wrong.Field, "The value is of the wrong kind.")
	case errors.As(err, &moment):
		return badRequest("body", "A time in it is not RFC 3339, such as 2026-11-30T12:00:00Z.")
	case errors.As(err, &member) && strings.HasPrefix(err.Error(), "duplicate"):
		return badRequest(memberName(member.FieldPath()), "The member stands twice; send it once.")
	case errors.As(err, &member):
		return badRequest(memberName(member.FieldPath()), "This member is not known here; /openapi.json lists those that are.")
	}
	return badRequest("body", "The body is not one JSON object with values of the right kinds.")
}

// memberName is a member's path if it looks like one: nothing else of a request is echoed.
func memberName(path string) string {
	if len(path) > 64 {
		return "body"
	}
	for i := range len(path) {
		c := path[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("._-[]", rune(c)) {
			return "body"
		}
	}
	return path
}

// maxReasonBytes bounds what a caller may say about why.
const maxReasonBytes = 256

// checkReason takes plain text of one line: it is shown in lists and logs.
func checkReason(reason string) *Problem {
	switch {
	case len(reason) > maxReasonBytes:
		return badRequest("reason", "The reason is longer than 256 bytes.")
	case !utf8.ValidString(reason) || strings.ContainsFunc(reason, func(r rune) bool { return !unicode.IsPrint(r) }):
		return badRequest("reason", "The reason is one line of plain text.")
	}
	return nil
}
