package event

import (
	"mime"
	"net/http"
	"strings"
)

// The content types that are taken; anything else is taken as the data of a CloudEvent in binary mode.
const (
	typePlain      = "application/json"
	typeStructured = "application/cloudevents+json"
	typeBatch      = "application/cloudevents-batch+json"
	typeFamily     = "application/cloudevents" // how the types of structured mode and batches begin

	headerContentType     = "Content-Type"
	headerContentEncoding = "Content-Encoding"

	takenTypes = "send " + typePlain + ", " + typeStructured + ", " + typeBatch + ", or a CloudEvent in ce-* headers."
)

// Parse reads one request: its headers as net/http gives them, and its body, read fully. It returns one event, or those
// of a batch in their order (none for an empty batch; the same identity may come twice). The error, if any, is an
// *Error. The events share memory with body, so it must not be written to or reused afterwards.
func Parse(namespace string, header http.Header, body []byte, limits Limits) ([]*Event, error) {
	limits = limits.withDefaults()
	if err := checkContentEncoding(header[headerContentEncoding]); err != nil {
		return nil, err
	}
	contentType, kind, err := classify(header)
	if err != nil {
		return nil, err
	}
	if kind == kindBatch {
		if len(body) > limits.MaxBatchBytes {
			return nil, tooLarge(fieldBody, "The batch", limits.MaxBatchBytes)
		}
		events, err := parseBatch(namespace, body, limits)
		if err != nil {
			return nil, err
		}
		return events, nil
	}
	if len(body) > limits.MaxPayloadBytes {
		return nil, tooLarge(fieldBody, "The event", limits.MaxPayloadBytes)
	}
	// One allocation for the event and the list that holds it.
	var single struct {
		list  [1]*Event
		event Event
	}
	one := &single
	e := &one.event
	one.list[0] = e
	e.Namespace, e.ContentType, e.Body = namespace, contentType, body
	if err := parseSingle(e, kind, header); err != nil {
		return nil, err
	}
	return one.list[:], nil
}

func parseSingle(e *Event, kind requestKind, header http.Header) (err *Error) {
	var dataschema string
	switch kind {
	case kindPlain:
		e.Mode = ModePlain
		err = parsePlain(e, header[headerIdempotencyKey])
	case kindStructured:
		e.Mode = ModeStructured
		s := scanner{buf: e.Body}
		if err = s.documentStart('{'); err != nil {
			return err
		}
		if dataschema, err = parseStructured(e, &s); err == nil && !s.end() {
			err = s.fault(fieldBody)
		}
	default:
		e.Mode = ModeBinary
		dataschema, err = parseBinary(e, header)
	}
	if err != nil {
		return err
	}
	e.finish(dataschema)
	return nil
}

// finish sets what follows from the rest.
func (e *Event) finish(dataschema string) {
	e.WebhookID = WebhookID(e.Source, e.ID)
	hashEvent(e, dataschema)
}

type requestKind uint8

const (
	kindPlain requestKind = iota
	kindStructured
	kindBatch
	kindBinary
)

// classify tells the kind of a request by its Content-Type alone, and where that is no type of ours by its ce-* headers
// (CloudEvents HTTP binding, 3). ce-* headers beside a structured event only repeat it.
func classify(header http.Header) (contentType string, kind requestKind, err *Error) {
	values := header[headerContentType]
	if len(values) > 1 {
		return "", 0, duplicate(headerContentType)
	}
	if len(values) == 1 {
		contentType = values[0]
	}
	if hasControl(contentType) {
		return "", 0, badRequest(headerContentType, "The header holds a control character; "+takenTypes)
	}
	if len(contentType) >= len(typeFamily) && strings.EqualFold(contentType[:len(typeFamily)], typeFamily) {
		media, err := mediaType(contentType)
		switch {
		case err != nil:
			return "", 0, err
		case media == typeStructured:
			return contentType, kindStructured, nil
		case media == typeBatch:
			return contentType, kindBatch, nil
		}
		return "", 0, unsupported(headerContentType, "CloudEvents are taken in the JSON format only; "+takenTypes)
	}
	if hasCloudEventHeader(header) {
		return contentType, kindBinary, nil
	}
	if contentType == "" {
		return "", 0, unsupported(headerContentType, "The header is missing; "+takenTypes)
	}
	media, err := mediaType(contentType)
	if err != nil {
		return "", 0, err
	}
	if media != typePlain {
		return "", 0, unsupported(headerContentType, "This content type is not taken; "+takenTypes)
	}
	return contentType, kindPlain, nil
}

// mediaType returns the type in lower case without its parameters, of which charset may only be utf-8: the body must be.
func mediaType(contentType string) (string, *Error) {
	switch contentType {
	case typePlain, typeStructured, typeBatch:
		return contentType, nil // as nearly all come
	case typePlain + "; charset=utf-8":
		return typePlain, nil
	}
	media, parameters, err := mime.ParseMediaType(contentType)
	if err != nil {
		return "", unsupported(headerContentType, "The header is malformed; "+takenTypes)
	}
	if charset, ok := parameters["charset"]; ok && !strings.EqualFold(charset, "utf-8") {
		return "", unsupported(headerContentType, "JSON is taken in UTF-8 only; send charset=utf-8 or none.")
	}
	return media, nil
}

// checkContentEncoding refuses compressed bodies: what is stored, signed and sent is what came, and a body that inflates
// would have another size than the one that was checked.
func checkContentEncoding(values []string) *Error {
	for _, value := range values {
		for coding := range strings.SplitSeq(value, ",") {
			if coding = strings.TrimSpace(coding); coding != "" && !strings.EqualFold(coding, "identity") {
				return unsupported(headerContentEncoding, "Compressed bodies are not taken; send the body as it is, without this header.")
			}
		}
	}
	return nil
}
