package event

import (
	"net/http"
	"strings"
	"testing"
)

// plain1KiB is an event of 1,024 bytes as a shop would send it.
func plain1KiB() []byte {
	const head = `{"id":"evt_20260524_001","type":"order.created","created_at":"2026-05-24T12:00:00Z",` +
		`"attributes":{"customer":"cust_42"},"data":{"id":123456789012345678,"amount":1999,"currency":"EUR","items":[`
	const item = `{"sku":"A-1001","quantity":2,"price":9.95,"name":"Espresso cup, white"},`
	const tail = `{"sku":"end"}],"note":"`
	var b strings.Builder
	b.WriteString(head)
	for b.Len()+len(item)+len(tail)+2 < 1000 {
		b.WriteString(item)
	}
	b.WriteString(tail)
	b.WriteString(strings.Repeat("x", 1024-3-b.Len()))
	b.WriteString(`"}}`)
	return []byte(b.String())
}

// TestParseAllocates guards the hot path: an event with its list, its texts in one string, and its attributes twice. (The
// fifth is for the race detector, under which a pool forgets at times.)
func TestParseAllocates(t *testing.T) {
	body := plain1KiB()
	got := testing.AllocsPerRun(1000, func() {
		if _, err := Parse("shop", plainHeader, body, Limits{}); err != nil {
			t.Fatal(err)
		}
	})
	if got > 5 {
		t.Errorf("%v allocations for a plain event, want at most 5", got)
	}
}

func BenchmarkParsePlain1KiB(b *testing.B) {
	body := plain1KiB()
	if len(body) != 1024 {
		b.Fatalf("the event has %d bytes", len(body))
	}
	header := http.Header{
		"Content-Type": {"application/json"}, "Accept": {"*/*"}, "User-Agent": {"shop/1.0"},
		"Content-Length": {"1024"}, "Authorization": {"Bearer x"},
	}
	benchmarkParse(b, header, body)
}

func BenchmarkParseStructured1KiB(b *testing.B) {
	body := []byte(`{"specversion":"1.0","id":"A234-1234-1234","source":"https://shop.example/orders","type":"order.created",` +
		`"time":"2026-05-24T12:00:00Z","datacontenttype":"application/json","customer":"cust_42","data":` +
		`{"note":"` + strings.Repeat("x", 800) + `"}}`)
	benchmarkParse(b, http.Header{"Content-Type": {"application/cloudevents+json"}}, body)
}

func BenchmarkParseBinary1KiB(b *testing.B) {
	header := http.Header{
		"Content-Type": {"application/json"}, "Ce-Specversion": {"1.0"}, "Ce-Id": {"A234-1234-1234"},
		"Ce-Source": {"https://shop.example/orders"}, "Ce-Type": {"order.created"}, "Ce-Time": {"2026-05-24T12:00:00Z"},
		"Ce-Customer": {"cust_42"},
	}
	benchmarkParse(b, header, plain1KiB())
}

func benchmarkParse(b *testing.B, header http.Header, body []byte) {
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, err := Parse("shop", header, body, Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}
