package filter

import (
	"fmt"
	"testing"
)

func BenchmarkMatch(b *testing.B) {
	e := plain(b, orderData)
	for _, expression := range []string{
		"event.type == 'order.created'",
		"event.attributes.customer == 'cust_42'",
		"event.data.amount >= 1000",
		"event.data.items.exists(i, i.sku == 'B') && event.data.name.startsWith('G')",
	} {
		f, err := Compile(expression)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(expression, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if pass, err := f.Match(e); !pass || err != nil {
					b.Fatal(pass, err)
				}
			}
		})
		b.Run(expression+", the event known", func(b *testing.B) {
			in := NewInput(e)
			b.ReportAllocs()
			for b.Loop() {
				if pass, err := f.MatchInput(in); !pass || err != nil {
					b.Fatal(pass, err)
				}
			}
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		n++
		if _, err := compile(fmt.Sprintf("event.data.amount >= %d && event.attributes.customer == 'cust_42'", n)); err != nil {
			b.Fatal(err)
		}
	}
}
