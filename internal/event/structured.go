package event

import (
	"encoding/base64"
	"fmt"
	"net/http"
)

// structuredEnvelope is a CloudEvent in the JSON format 1.0. A null attribute is one that is not set.
type structuredEnvelope struct {
	specversion, id, source, typ, subject, time, datacontenttype, dataschema member
	data, dataBase64                                                         member
	attrs                                                                    []rawAttribute
}

// parseStructured reads one event from the scanner, which stands behind its opening brace, and leaves it behind the
// closing one. The caller sets Body and calls finish.
func parseStructured(e *Event, s *scanner) (dataschema string, err *Error) {
	var c structuredEnvelope
	for first := true; ; first = false {
		name, done, err := s.next(first)
		if err != nil {
			return "", err
		}
		if done {
			break
		}
		if err := c.member(s, name); err != nil {
			return "", err
		}
	}
	return c.fill(e)
}

func (c *structuredEnvelope) member(s *scanner, name []byte) (err *Error) {
	switch string(name) {
	case "specversion":
		return c.specversion.read(s, "specversion", true)
	case "id":
		return c.id.read(s, "id", true)
	case "source":
		return c.source.read(s, "source", true)
	case "type":
		return c.typ.read(s, "type", true)
	case "subject":
		return c.subject.read(s, "subject", true)
	case "time":
		return c.time.read(s, "time", true)
	case "datacontenttype":
		return c.datacontenttype.read(s, "datacontenttype", true)
	case "dataschema":
		return c.dataschema.read(s, "dataschema", true)
	case "data_base64":
		return c.dataBase64.read(s, "data_base64", true)
	case "data":
		if err := c.data.once("data"); err != nil {
			return err
		}
		return s.skip("data")
	}
	if !validAttributeName(name) {
		return badAttributeName("")
	}
	c.attrs, err = s.attribute(c.attrs, name, "")
	return err
}

// fill makes the event of what was found.
func (c *structuredEnvelope) fill(e *Event) (dataschema string, err *Error) {
	if err := c.check(); err != nil {
		return "", err
	}
	if c.subject.given() {
		c.attrs = append(c.attrs, rawAttribute{name: []byte("subject"), value: c.subject.text})
	}
	if c.dataschema.given() {
		c.attrs = append(c.attrs, rawAttribute{name: []byte("dataschema"), value: c.dataschema.text})
	}
	core := []*member{&c.id, &c.source, &c.typ, &c.time, &c.subject, &c.dataschema}
	texts := newPacker(core, c.attrs)
	e.ID = texts.take(len(c.id.text))
	e.Source = texts.take(len(c.source.text))
	e.Type = texts.take(len(c.typ.text))
	moment := texts.take(len(c.time.text))
	e.Subject = texts.take(len(c.subject.text))
	dataschema = texts.take(len(c.dataschema.text))
	if err := e.checkIdentity(""); err != nil {
		return "", err
	}
	if c.time.given() {
		if e.Time, err = parseTime("time", moment); err != nil {
			return "", err
		}
	}
	e.Attributes, err = texts.attributes(c.attrs, "")
	return dataschema, err
}

// check judges which members are there, and the version.
func (c *structuredEnvelope) check() *Error {
	switch {
	case !c.specversion.given():
		return missing("specversion")
	case !c.id.given():
		return missing("id")
	case !c.source.given():
		return missing("source")
	case !c.typ.given():
		return missing("type")
	case string(c.specversion.text) != specVersion:
		return badSpecVersion("specversion")
	case c.source.empty():
		return empty("source")
	case c.subject.empty():
		return empty("subject")
	case c.dataschema.empty():
		return empty("dataschema")
	case c.datacontenttype.empty():
		return empty("datacontenttype")
	}
	if c.dataBase64.given() {
		if c.data.seen {
			return badRequest("data_base64", "Both data and data_base64 are given; send one of them.")
		}
		if !validBase64(c.dataBase64.text) {
			return badRequest("data_base64", "This is not base64 (RFC 4648, standard alphabet with padding); encode it again or use data.")
		}
	}
	return nil
}

// validBase64 decodes in pieces, since all that is wanted is whether it works.
func validBase64(text []byte) bool {
	const piece = 1024 // a multiple of 4
	var out [piece]byte
	if len(text)%4 != 0 {
		return false
	}
	for len(text) > 0 {
		n := min(piece, len(text))
		got, err := base64.StdEncoding.Decode(out[:], text[:n])
		if err != nil || got < n/4*3 && n < len(text) {
			return false // malformed, or padding (or a line break, which the decoder skips) before the end
		}
		text = text[n:]
	}
	return true
}

const specVersion = "1.0"

func badSpecVersion(field string) *Error {
	return badRequest(field, "Only CloudEvents 1.0 is taken; send specversion 1.0.")
}

// parseBatch reads an array of structured events, whole or not at all. Each event's Body is its own part of body.
func parseBatch(namespace string, body []byte, limits Limits) ([]*Event, *Error) {
	s := scanner{buf: body}
	if err := s.documentStart('['); err != nil {
		return nil, err
	}
	var events []*Event
	if s.space() == ']' {
		s.pos++
	} else {
		for more := true; more; {
			if len(events) == limits.MaxBatchEvents {
				return nil, &Error{
					Status: http.StatusRequestEntityTooLarge, Field: fieldBody,
					Detail: fmt.Sprintf("The batch has more than %d events; split it.", limits.MaxBatchEvents),
				}
			}
			e, err := parseElement(namespace, &s, limits)
			if err != nil {
				return nil, err.inElement(len(events))
			}
			events = append(events, e)
			switch s.space() {
			case ',':
				s.pos++
			case ']':
				s.pos++
				more = false
			default:
				s.fail(s.pos, faultArrayEnd)
				return nil, s.fault(fieldBody)
			}
		}
	}
	if !s.end() {
		return nil, s.fault(fieldBody)
	}
	return events, nil
}

func parseElement(namespace string, s *scanner, limits Limits) (*Event, *Error) {
	if s.space() != '{' {
		if s.pos >= len(s.buf) {
			s.fail(s.pos, faultEnd)
			return nil, s.fault(fieldBody)
		}
		return nil, badRequest(fieldBody, "An element of a batch must be an object; send one CloudEvent in each.")
	}
	from := s.pos
	s.pos++
	e := &Event{Namespace: namespace, Mode: ModeStructured, ContentType: typeStructured}
	dataschema, err := parseStructured(e, s)
	if err != nil {
		return nil, err
	}
	e.Body = s.buf[from:s.pos:s.pos]
	if len(e.Body) > limits.MaxPayloadBytes {
		return nil, tooLarge(fieldBody, "The event", limits.MaxPayloadBytes)
	}
	e.finish(dataschema)
	return e, nil
}
