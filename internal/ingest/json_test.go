package ingest

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func FuzzAppendJSONString(f *testing.F) {
	for _, s := range []string{"", "a", `"\`, "\x00\x1f\x7f", "é😀\u2028", "\xff\xc0\xa0", "a\xe2\x82"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b := appendJSONString([]byte("x"), s)
		var got string
		if err := json.Unmarshal(b[1:], &got); err != nil {
			t.Fatalf("%q gives %s: %v", s, b, err)
		}
		if want := strings.ToValidUTF8(s, "\ufffd"); utf8.ValidString(s) && got != want {
			t.Errorf("%q came back as %q", s, got)
		}
		// Each bad byte is one U+FFFD, as encoding/json has it.
		std, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var viaStd string
		if err := json.Unmarshal(std, &viaStd); err != nil || viaStd != got {
			t.Errorf("%q reads as %q, encoding/json makes it %q (%v)", s, got, viaStd, err)
		}
	})
}
