package event

import "bytes"

// Alone returns the data as it is sent without its event, and the content type to send it with, which is empty where
// none is given or no header can hold it. Nothing is re-encoded: these are the bytes of Data, but for a JSON string whose
// type is not JSON, which stands for its text (CloudEvents JSON format 1.0, 3.1). A data of null is sent as null; an
// event without data as nothing.
func (d Data) Alone() (body []byte, contentType string) {
	contentType = d.ContentType
	if !headerSafe(contentType) {
		contentType = ""
	}
	if !d.JSON || isJSON(d.MediaType) || len(d.Bytes) == 0 || d.Bytes[0] != '"' {
		return d.Bytes, contentType
	}
	raw := d.Bytes[1 : len(d.Bytes)-1]
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw, contentType
	}
	text, _ := decodeString(raw)
	return text, contentType
}

// headerSafe reports whether a header can hold a value as it is: printable ASCII.
func headerSafe(value string) bool {
	for i := range len(value) {
		if value[i] < ' ' || value[i] > '~' {
			return false
		}
	}
	return true
}

// AppendHeaderValue appends a text of an event as a header can hold it, and decode as CloudEvents binary mode has it
// (HTTP binding 1.0, 3.1.3.2): space, double quote, percent sign and everything outside U+0021 to U+007E
// percent-encoded as UTF-8, with upper-case digits.
func AppendHeaderValue(dst []byte, text string) []byte {
	const digits = "0123456789ABCDEF"
	for i := range len(text) {
		if c := text[i]; c > ' ' && c <= '~' && c != '"' && c != '%' {
			dst = append(dst, c)
		} else {
			dst = append(dst, '%', digits[c>>4], digits[c&15])
		}
	}
	return dst
}
