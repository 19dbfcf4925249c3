package event

import "time"

// parseTime reads an RFC 3339 time, in UTC. Unlike time.Parse it takes what the RFC's grammar takes and time does not
// (a lower-case t or z, a leap second, which counts as the second after it), and nothing beyond.
func parseTime(field, s string) (time.Time, *Error) {
	const longest = 64
	var space [longest]byte
	if len(s) < len("2006-01-02T15:04:05Z") || len(s) > longest {
		return time.Time{}, badTime(field)
	}
	b := append(space[:0], s...)
	if b[10] == 't' {
		b[10] = 'T'
	}
	if last := len(b) - 1; b[last] == 'z' {
		b[last] = 'Z'
	}
	leap := time.Duration(0)
	if b[17] == '6' && b[18] == '0' {
		b[17], b[18] = '5', '9'
		leap = time.Second
	}
	t, err := time.Parse(time.RFC3339, string(b))
	if err != nil || !strictRFC3339(b) {
		return time.Time{}, badTime(field)
	}
	return t.Add(leap).UTC(), nil
}

// strictRFC3339 looks for what time.Parse takes beyond RFC 3339 (go.dev/issue/54580): an hour of one digit, a comma for
// the point, and offsets of 24 hours or 60 minutes. b has been parsed.
func strictRFC3339(b []byte) bool {
	if b[13] != ':' || b[19] == ',' {
		return false
	}
	if b[len(b)-1] == 'Z' {
		return true
	}
	zone := b[len(b)-len("00:00"):]
	return string(zone[:2]) <= "23" && string(zone[3:]) <= "59"
}

func badTime(field string) *Error {
	return badRequest(field, "This is not an RFC 3339 time; send one such as 2026-05-24T12:00:00Z.")
}
