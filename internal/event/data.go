package event

import (
	"bytes"
	"encoding/base64"
	"mime"
	"strings"
)

// Data is an event's data as its producer wrote it.
type Data struct {
	// Bytes are the data; nil where the event has none. Those of a JSON value are a part of Body, those of data_base64
	// are decoded.
	Bytes []byte
	// JSON says that Bytes are meant to be one JSON value. Of an event in binary mode only its Content-Type says so.
	JSON bool
	// MediaType is the type of Bytes in lower case without parameters, such as text/xml; empty where none is given.
	MediaType string
	// ContentType is the same as it was given, with its parameters.
	ContentType string
}

const (
	memberData        = "data"
	memberDataBase64  = "data_base64"
	memberContentType = "datacontenttype"
)

// Data finds the data within Body. It reads the envelope once, and allocates nothing for data that is JSON.
func (e *Event) Data() Data {
	if e.Mode == ModeBinary {
		media := plainMediaType(e.ContentType)
		d := Data{JSON: isJSON(media), MediaType: media, ContentType: e.ContentType}
		if len(e.Body) > 0 {
			d.Bytes = e.Body
		}
		return d
	}
	s := scanner{buf: e.Body}
	if s.documentStart('{') != nil {
		return Data{}
	}
	d := Data{JSON: true, MediaType: typePlain, ContentType: typePlain}
	given, contentType := "", "" // of datacontenttype
	for first := true; ; first = false {
		name, done, err := s.next(first)
		if done || err != nil {
			break
		}
		s.space()
		from := s.pos
		if s.skip("") != nil {
			break
		}
		value := s.buf[from:s.pos:s.pos]
		switch {
		case string(name) == memberData:
			d.Bytes = value
		case e.Mode != ModeStructured || value[0] != '"':
		case string(name) == memberDataBase64:
			d.Bytes, d.JSON = decodeBase64(value), false
		case string(name) == memberContentType:
			text, _ := decodeString(value[1 : len(value)-1])
			contentType = string(text)
			given = plainMediaType(contentType)
		}
	}
	switch {
	case !d.JSON:
		d.JSON, d.MediaType, d.ContentType = isJSON(given), given, contentType
	case given != "":
		d.MediaType, d.ContentType = given, contentType
	}
	return d
}

// decodeBase64 decodes a JSON string that was found to be base64.
func decodeBase64(value []byte) []byte {
	text, _ := decodeString(value[1 : len(value)-1])
	out := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, _ := base64.StdEncoding.Decode(out, text)
	return out[:n]
}

// plainMediaType is a content type in lower case without its parameters.
func plainMediaType(contentType string) string {
	if contentType == typePlain {
		return typePlain
	}
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		media, _, _ = strings.Cut(contentType, ";")
		media = strings.ToLower(strings.TrimSpace(media))
	}
	return media
}

// isJSON reports whether a media type is JSON (RFC 8259) or built on it (RFC 6839).
func isJSON(media string) bool {
	return media == typePlain || media == "text/json" || strings.HasSuffix(media, "+json")
}

// Null reports whether there is no data, or only the JSON value null.
func (d Data) Null() bool {
	return d.Bytes == nil || d.JSON && bytes.Equal(bytes.TrimSpace(d.Bytes), []byte("null"))
}
