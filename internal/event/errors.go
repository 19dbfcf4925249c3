package event

import (
	"fmt"
	"net/http"
	"strconv"
)

// Error is bad input. It never holds bytes of the request; a field is named only by a name this package knows or has
// checked to be made of a-z and 0-9.
type Error struct {
	// Status is 400, 413 or 415. None of them is worth a retry of the same request.
	Status int
	// Field is the member or header at fault: "id", "attributes.customer", "[2].type", "ce-subject", "Content-Type";
	// "body" when it is the body as a whole.
	Field string
	// Detail is one plain sentence that says what is wrong and what to do.
	Detail string
}

// Error returns "field: detail".
func (e *Error) Error() string { return e.Field + ": " + e.Detail }

const fieldBody = "body"

func badRequest(field, detail string) *Error {
	return &Error{Status: http.StatusBadRequest, Field: field, Detail: detail}
}

func unsupported(field, detail string) *Error {
	return &Error{Status: http.StatusUnsupportedMediaType, Field: field, Detail: detail}
}

func tooLarge(field, what string, limit int) *Error {
	return &Error{
		Status: http.StatusRequestEntityTooLarge,
		Field:  field,
		Detail: fmt.Sprintf("%s is larger than %d bytes; keep the full data elsewhere and send a URL to it.", what, limit),
	}
}

func tooLong(field string, limit int) *Error {
	return badRequest(field, fmt.Sprintf("The value is longer than %d bytes; send a shorter one.", limit))
}

func missing(field string) *Error {
	return badRequest(field, "This is required and missing; send it as a non-empty string.")
}

func empty(field string) *Error {
	return badRequest(field, "The value is empty; send at least one character.")
}

func duplicate(field string) *Error {
	return badRequest(field, "This was given more than once; send it once.")
}

// inElement moves an error of one element of a batch to its place in the array.
func (e *Error) inElement(index int) *Error {
	at := "[" + strconv.Itoa(index) + "]"
	if e.Field != fieldBody {
		at += "." + e.Field
	}
	return &Error{Status: e.Status, Field: at, Detail: e.Detail}
}
