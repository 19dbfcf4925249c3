package sign

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"
)

// case SIG-09
func TestSignRefusesIDsThatMoveTheBoundary(t *testing.T) {
	key := mustKey(t, secretA)
	for _, id := range []string{"a.1614265330", ".", "a.", ".a", ""} {
		if got, err := Sign([]byte("x"), []Key{key}, id, tsA, []byte("x")); err != ErrID || string(got) != "x" {
			t.Errorf("Sign(%q) = %q, %v, want ErrID and nothing appended", id, got, err)
		}
	}
	// The forgery that the rule is for: both would have the same HMAC.
	sig := mustKey(t, secretA).k.appendMAC([]byte("v1,"), standardContent, inBase64, "a.1614265330", []byte("1614265330"), []byte("x"))
	if err := Verify([]Key{key}, "a.1614265330", "1614265330", string(sig), []byte("x"), time.Unix(tsA, 0), DefaultTolerance); err != ErrID {
		t.Errorf("Verify = %v, want ErrID", err)
	}
}

func TestSignRefusesToSignWithNothing(t *testing.T) {
	for name, keys := range map[string][]Key{
		"no keys":      nil,
		"zero key":     {{}},
		"public key":   {mustKey(t, publicC)},
		"one is a bad": {mustKey(t, secretA), {}},
	} {
		if got, err := Sign(nil, keys, idA, tsA, nil); err != ErrNoKey || len(got) != 0 {
			t.Errorf("%s: Sign = %q, %v, want ErrNoKey", name, got, err)
		}
	}
}

func TestSignSignsByEachKeyInOrder(t *testing.T) {
	got, err := Sign([]byte("keep "), []Key{mustKey(t, secretB), mustKey(t, secretC), mustKey(t, secretA)}, idA, tsA, []byte(bodyA))
	want := "keep v1,78nXHjpFP0tVJQW5D0SBwmVyyW87BV/rL6MgfM/Bw44= " +
		"v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg== " + sigA
	if err != nil || string(got) != want {
		t.Errorf("Sign = %q, %v, want %q", got, err, want)
	}
}

func TestSignIsSafeForConcurrentUse(t *testing.T) {
	keys := []Key{mustKey(t, secretA)}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				if got, err := Sign(nil, keys, idA, tsA, []byte(bodyA)); err != nil || string(got) != sigA {
					t.Errorf("Sign = %q, %v", got, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// cases SIG-05, SIG-06, SIG-10, IV217
func TestVerifySignatureHeader(t *testing.T) {
	const wrong = "v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc="
	keys := []Key{mustKey(t, secretB), mustKey(t, secretA)}
	for _, row := range []struct {
		name, header string
		want         error
	}{
		{"the signature", sigA, nil},
		{"any match passes, unknown versions are skipped", wrong + " v2," + sigA[3:] + " " + sigA, nil},
		{"empty tokens between", "  " + sigA + "  ", nil},
		{"another's alone", wrong, ErrSignature},
		{"unknown version alone", "v2," + sigA[3:], ErrSignature},
		{"v1a with an HMAC", "v1a," + sigA[3:], ErrSignature},
		{"upper-case version", "V1," + sigA[3:], ErrSignature},
		{"version alone", "v1,", ErrSignature},
		{"no comma", "v1", ErrSignature},
		{"no version", sigA[3:], ErrSignature},
		{"first 8 characters", sigA[:11], ErrSignature},
		{"last character missing", sigA[:len(sigA)-1], ErrSignature},
		{"one character off", strings.Replace(sigA, "1OE=", "1OA=", 1), ErrSignature},
		{"not base64", "v1,dawfeoifkpqwoekfpqoekf", ErrSignature},
		{"two comma parts", sigA + ",more", ErrSignature},
		{"é", "v1,é " + "é", ErrSignature},
		{"blanks", "   ", ErrSignature},
		{"NUL", "v1,\x00", ErrSignature},
		{"10 KiB", "v1," + strings.Repeat("A", 10<<10), ErrSignature},
		{"very many, the right one last", strings.Repeat("v1,A ", 5000) + sigA, ErrSignature},
		{"empty", "", ErrMissing},
	} {
		t.Run(row.name, func(t *testing.T) {
			if err := Verify(keys, idA, "1614265330", row.header, []byte(bodyA), time.Unix(tsA, 0), DefaultTolerance); err != row.want {
				t.Errorf("Verify = %v, want %v", err, row.want)
			}
		})
	}
	for _, body := range []string{"{\n  \"test\": 2432232314\n}", `{"test":2432232314}`, ""} {
		if err := Verify(keys, idA, "1614265330", sigA, []byte(body), time.Unix(tsA, 0), DefaultTolerance); err != ErrSignature {
			t.Errorf("Verify of the body %q = %v, want ErrSignature", body, err)
		}
	}
	for name, v1a := range map[string]string{"too short": "v1a,AAAA", "not base64": "v1a,?", "empty": "v1a,", "an HMAC": sigA} {
		if err := Verify([]Key{mustKey(t, publicC)}, idA, "1614265330", v1a, []byte(bodyA), time.Unix(tsA, 0), DefaultTolerance); err != ErrSignature {
			t.Errorf("Ed25519, %s: Verify = %v, want ErrSignature", name, err)
		}
	}
	if err := Verify(nil, idA, "1614265330", sigA, []byte(bodyA), time.Unix(tsA, 0), DefaultTolerance); err != ErrSignature {
		t.Errorf("Verify without keys = %v, want ErrSignature", err)
	}
}

// case SIG-04: the example in the specification does not verify.
func TestSpecificationExampleFails(t *testing.T) {
	const body = `{"type":"contact.created","timestamp":"2022-11-03T20:26:10.344522Z","data":{"id":"1f81eb52-5198-4599-803e-771906343485"}}`
	const header = "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg=="
	err := Verify([]Key{mustKey(t, publicC)}, "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W", "1674087231", header, []byte(body), time.Unix(1674087231, 0), DefaultTolerance)
	if err != ErrSignature {
		t.Errorf("Verify = %v, want ErrSignature", err)
	}
}

// cases CLK-01, CLK-02, IV215
func TestVerifyToleranceIsTwoSidedAndInclusive(t *testing.T) {
	keys := []Key{mustKey(t, secretA)}
	for _, row := range []struct {
		now  time.Time
		skew int64 // 0: taken
	}{
		{time.Unix(tsA+300, 999_999_999), 0},
		{time.Unix(tsA+301, 0), -301},
		{time.Unix(tsA-300, 0), 0},
		{time.Unix(tsA-300, -1), 301},
		{time.Unix(tsA-301, 0), 301},
		{time.Unix(tsA+10*365*86400, 0), -10 * 365 * 86400},
		{time.Unix(tsA-10*365*86400, 0), 10 * 365 * 86400},
	} {
		err := Verify(keys, idA, "1614265330", sigA, []byte(bodyA), row.now, DefaultTolerance)
		var skew *SkewError
		switch {
		case row.skew == 0 && err != nil:
			t.Errorf("now %v: %v", row.now, err)
		case row.skew != 0 && (!errors.As(err, &skew) || skew.Seconds != row.skew):
			t.Errorf("now %v: %v, want a skew of %d", row.now, err, row.skew)
		}
	}
	if got := (&SkewError{-301}).Error(); got != "the timestamp is 301 s old" {
		t.Error(got)
	}
	if got := (&SkewError{301}).Error(); got != "the timestamp is 301 s ahead" {
		t.Error(got)
	}
}

// case CLK-03
func TestVerifyRefusesOtherTimestamps(t *testing.T) {
	keys := []Key{mustKey(t, secretA)}
	for _, ts := range []string{"hello", "1614265330.0", "-1", "+1614265330", " 1614265330", "1614265330 ", "1614265330000", "99999999999999999999", "0x60", "01614265330", "١٦١٤٢٦٥٣٣٠"} {
		sig, _ := Sign(nil, keys, idA, tsA, []byte(bodyA))
		// Even correctly signed it is no timestamp.
		sig = append(sig, " v1,"...)
		sig = keys[0].k.appendMAC(sig, standardContent, inBase64, idA, []byte(ts), []byte(bodyA))
		if err := Verify(keys, idA, ts, string(sig), []byte(bodyA), time.Unix(tsA, 0), DefaultTolerance); err != ErrTimestamp {
			t.Errorf("timestamp %q: %v, want ErrTimestamp", ts, err)
		}
	}
	if err := Verify(keys, idA, "", sigA, nil, time.Unix(tsA, 0), DefaultTolerance); err != ErrMissing {
		t.Errorf("no timestamp: %v, want ErrMissing", err)
	}
	if err := Verify(keys, "", "1614265330", sigA, nil, time.Unix(tsA, 0), DefaultTolerance); err != ErrMissing {
		t.Errorf("no id: %v, want ErrMissing", err)
	}
}

func TestSignAllocatesLittle(t *testing.T) {
	keys, body, dst := []Key{mustKey(t, secretA)}, bytes.Repeat([]byte("a"), 1024), make([]byte, 0, 128)
	// None, but that a sync.Pool drops some of its items under the race detector.
	if n := testing.AllocsPerRun(1000, func() { _, _ = Sign(dst, keys, idA, tsA, body) }); n > 3 {
		t.Errorf("Sign allocates %v times, want none", n)
	}
}

func BenchmarkSign1KiB(b *testing.B) {
	keys, body, dst := []Key{mustKey(b, secretA)}, bytes.Repeat([]byte("a"), 1024), make([]byte, 0, 128)
	b.SetBytes(1024)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Sign(dst, keys, idA, tsA, body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVerify1KiB(b *testing.B) {
	keys, body := []Key{mustKey(b, secretA)}, bytes.Repeat([]byte("a"), 1024)
	sig, _ := Sign(nil, keys, idA, tsA, body)
	now := time.Unix(tsA, 0)
	b.ReportAllocs()
	for b.Loop() {
		if err := Verify(keys, idA, "1614265330", string(sig), body, now, DefaultTolerance); err != nil {
			b.Fatal(err)
		}
	}
}
