package event

// plainEnvelope is what Doorstep's own JSON form holds beside its data. Members that are not named here are the
// producer's own: they must be JSON, and are sent on with the body.
type plainEnvelope struct {
	id, source, typ, createdAt, time member
	data, attributes                 member // only seen
	attrs                            []rawAttribute
}

// parsePlain reads {"id","type","created_at"?,"source"?,"attributes"?,"data"}. key holds the values of the
// Idempotency-Key header, which serves where there is no id.
func parsePlain(e *Event, key []string) *Error {
	s := scanner{buf: e.Body}
	if err := s.documentStart('{'); err != nil {
		return err
	}
	var p plainEnvelope
	for first := true; ; first = false {
		name, done, err := s.next(first)
		if err != nil {
			return err
		}
		if done {
			break
		}
		if err := p.member(&s, name); err != nil {
			return err
		}
	}
	if !s.end() {
		return s.fault(fieldBody)
	}
	return p.fill(e, key)
}

func (p *plainEnvelope) member(s *scanner, name []byte) *Error {
	switch string(name) {
	case "id":
		return p.id.read(s, "id", false)
	case "type":
		return p.typ.read(s, "type", false)
	case "source":
		return p.source.read(s, "source", false)
	case "created_at":
		return p.createdAt.read(s, "created_at", false)
	case "time":
		return p.time.read(s, "time", false)
	case "attributes":
		if err := p.attributes.once(fieldAttributes); err != nil {
			return err
		}
		return p.readAttributes(s)
	case "data":
		if err := p.data.once("data"); err != nil {
			return err
		}
		return s.skip("data")
	}
	return s.skip(fieldBody)
}

// readAttributes reads an object of attributes; null is an object with none.
func (p *plainEnvelope) readAttributes(s *scanner) *Error {
	if c := s.space(); c == 'n' {
		return s.skip(fieldAttributes)
	} else if c != '{' {
		return badRequest(fieldAttributes, "This must be an object of names and strings.")
	}
	s.pos++
	for first := true; ; first = false {
		name, done, err := s.next(first)
		if err != nil || done {
			return err
		}
		if !validAttributeName(name) {
			return badAttributeName(attributesPrefix)
		}
		if p.attrs, err = s.attribute(p.attrs, name, attributesPrefix); err != nil {
			return err
		}
	}
}

// fill makes the event of what was found.
func (p *plainEnvelope) fill(e *Event, key []string) *Error {
	when, field := &p.createdAt, "created_at"
	if p.time.seen {
		if p.createdAt.seen {
			return badRequest("time", "Both time and created_at are given, and they mean the same; send one.")
		}
		when, field = &p.time, "time"
	}
	texts := newPacker([]*member{&p.id, &p.source, &p.typ, when}, p.attrs)
	e.ID = texts.take(len(p.id.text))
	e.Source = texts.take(len(p.source.text))
	e.Type = texts.take(len(p.typ.text))
	moment := texts.take(len(when.text))

	var err *Error
	if !p.id.seen {
		if e.ID, err = idempotencyKey(key); err != nil {
			return err
		}
	}
	if !p.typ.seen {
		return missing("type")
	}
	if err = e.checkIdentity(""); err != nil {
		return err
	}
	if when.seen {
		if e.Time, err = parseTime(field, moment); err != nil {
			return err
		}
	}
	if e.Attributes, err = texts.attributes(p.attrs, attributesPrefix); err != nil {
		return err
	}
	if !p.data.seen {
		return badRequest("data", "This is required and missing; send the event's data, or null if it has none.")
	}
	return nil
}

const headerIdempotencyKey = "Idempotency-Key"

// idempotencyKey returns the id that the Idempotency-Key header gives: printable ASCII, either bare or as the quoted
// string of draft-ietf-httpapi-idempotency-key-header.
func idempotencyKey(values []string) (string, *Error) {
	switch len(values) {
	case 0:
		return "", badRequest("id", "This is required and missing; send it as a non-empty string, or an Idempotency-Key header.")
	case 1:
	default:
		return "", duplicate(headerIdempotencyKey)
	}
	key, ok := unquote(values[0])
	if !ok {
		return "", badRequest(headerIdempotencyKey, "The quoted string is malformed; end it with a double quote and escape only quotes and backslashes.")
	}
	if key == "" {
		return "", empty(headerIdempotencyKey)
	}
	if len(key) > maxIDBytes {
		return "", tooLong(headerIdempotencyKey, maxIDBytes)
	}
	for i := range len(key) {
		if key[i] < ' ' || key[i] > '~' {
			return "", badRequest(headerIdempotencyKey, "The value is not printable ASCII; send another id in the body.")
		}
	}
	return key, nil
}

// documentStart checks how a body begins, and steps over its first bracket, which must be open.
func (s *scanner) documentStart(open byte) *Error {
	if len(s.buf) >= 3 && s.buf[0] == 0xEF && s.buf[1] == 0xBB && s.buf[2] == 0xBF {
		return badRequest(fieldBody, "The body begins with a byte order mark; send UTF-8 without it.")
	}
	c := s.space()
	if c == open {
		s.pos++
		return nil
	}
	switch {
	case s.pos >= len(s.buf):
		return badRequest(fieldBody, "The body is empty; send an event as JSON.")
	case c == '[':
		return badRequest(fieldBody, "The body is an array; send one event as an object, or a batch as "+typeBatch+".")
	case c == '{':
		return badRequest(fieldBody, "The body is an object; send a batch as an array, or one event as "+typeStructured+".")
	}
	return badRequest(fieldBody, "The body is not a JSON object or array; send an event as JSON.")
}
