package event

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// scans reports whether b is one JSON text, as the scanner sees it.
func scans(b []byte) bool {
	s := scanner{buf: b}
	return s.value() && s.end()
}

var scanSeeds = []string{
	`{}`, `[]`, `""`, `0`, `-0`, `1e400`, `-1.5E+3`, `true`, `false`, `null`, ` [1 , {"a" : [ ] } ] `,
	`{"a":1,"a":2}`, `"\ud800"`, `"\ud83d\ude00"`, `"\u0000\b\f\n\r\t\/\\\""`, `"é😀"`, `[[[[[[]]]]]]`,
	``, ` `, `{`, `[`, `"`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `[1,]`, `[,1]`, `{,}`, `{"a" 1}`, `{a:1}`,
	`01`, `-`, `1.`, `.5`, `1e`, `1e+`, `+1`, `0x1`, `NaN`, `tru`, `truee`, `nul`, `"\x"`, `"\u12"`, `"\u12g4"`, `"\`,
	"\"a\nb\"", "\"a\x00b\"", "\"\xff\"", "\"\xc0\xa0\"", "\"\xed\xa0\x80\"", "\xef\xbb\xbf{}", `{} {}`, `[}`, `{]`, `{"a":1]`,
	`"12345678`, `"1234567"`, `"12345678"`, `"123456789"`, "\"1234567\x1f\"", "\"éééééééé\x7f\"", "\x00",
}

// agree tells whether the scanner and encoding/json say the same: encoding/json takes strings that are not UTF-8 and
// refuses more than 10,000 levels.
func agree(b []byte) bool {
	if len(b) > 10000 && depth(b) > 10000 {
		return true
	}
	return scans(b) == (json.Valid(b) && utf8.Valid(b))
}

// depth bounds the nesting of b from above.
func depth(b []byte) int { return bytes.Count(b, []byte("[")) + bytes.Count(b, []byte("{")) }

func TestScanAgreesWithEncodingJSON(t *testing.T) {
	valid := 0
	for _, seed := range scanSeeds {
		// At each offset within the eight bytes that are looked at in one step.
		for pad := range 9 {
			b := []byte(`["` + strings.Repeat("x", pad) + `",` + seed + `]`)
			if !agree(b) {
				t.Errorf("%q: scanner says %v", b, scans(b))
			}
		}
		if !agree([]byte(seed)) {
			t.Errorf("%q: scanner says %v", seed, scans([]byte(seed)))
		}
		if scans([]byte(seed)) {
			valid++
		}
	}
	if valid < 15 || valid > len(scanSeeds)-15 {
		t.Errorf("%d of %d seeds are valid: the table has lost one side", valid, len(scanSeeds))
	}
}

// case BDY-08: depth costs neither stack nor time beyond its length.
func TestScanTakesAnyDepth(t *testing.T) {
	const levels = 1_000_000
	deep := strings.Repeat(`[`, levels) + strings.Repeat(`]`, levels)
	if !scans([]byte(deep)) {
		t.Error("a million arrays are refused")
	}
	if scans([]byte(deep[:len(deep)-1])) {
		t.Error("a million arrays, one open, are taken")
	}
	mixed := strings.Repeat(`[{"a":`, 10_000) + "1" + strings.Repeat(`}]`, 10_000)
	if !scans([]byte(mixed)) {
		t.Error("mixed nesting is refused")
	}
	if wrong := strings.Replace(mixed, "1}", "1]", 1); scans([]byte(wrong)) {
		t.Error("a bracket that closes an object at depth 20,000 is taken")
	}
}

// TestScanSeesEachByte tries every byte at every place of the eight that are looked at in one step.
func TestScanSeesEachByte(t *testing.T) {
	for c := range 256 {
		for place := range 8 {
			b := []byte(`"aaaaaaaaaaaaaaaa"`)
			b[1+place] = byte(c)
			if !agree(b) {
				t.Errorf("%q: scanner says %v", b, scans(b))
			}
		}
	}
}

func TestDecodeString(t *testing.T) {
	for _, c := range []struct {
		raw, want string
		whole     bool
	}{
		{`plain`, "plain", true},
		{`\"\\\/\b\f\n\r\t`, "\"\\/\b\f\n\r\t", true},
		{`\u0069d`, "id", true},
		{`\u00e9\u20AC`, "é€", true},
		{`\ud83d\ude00`, "😀", true},
		{`\\ud800`, `\ud800`, true},
		{`\ufffd`, "\ufffd", true},
		{`\ud800`, "\ufffd", false},
		{`\ude00\ud83d`, "\ufffd\ufffd", false},
		{`\ud800x`, "\ufffdx", false},
		{`\ud800\n`, "\ufffd\n", false},
		{`\ud800\u0041`, "\ufffdA", false},
		{`\ud800\ud83d\ude00`, "\ufffd😀", false},
	} {
		if got, whole := decodeString([]byte(c.raw)); string(got) != c.want || whole != c.whole {
			t.Errorf("decodeString(%s) = %q, %v; want %q, %v", c.raw, got, whole, c.want, c.whole)
		}
	}
}

func FuzzScan(f *testing.F) {
	for _, seed := range scanSeeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if !agree(b) {
			t.Fatalf("%q: scanner says %v, encoding/json %v, UTF-8 %v", b, scans(b), json.Valid(b), utf8.Valid(b))
		}
		s := scanner{buf: b}
		if s.space() != '"' || !s.value() || !s.end() {
			return
		}
		s = scanner{buf: b}
		s.space()
		raw, _, _ := s.str()
		text, whole := decodeString(raw)
		var want string
		if err := json.Unmarshal(b, &want); err != nil {
			t.Fatal(err)
		}
		if string(text) != want || !utf8.Valid(text) {
			t.Fatalf("%q: decoded %q (whole %v), encoding/json %q", b, text, whole, want)
		}
	})
}
