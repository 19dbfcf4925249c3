package event

import (
	"strings"
	"testing"
)

func TestMatchType(t *testing.T) {
	for _, c := range []struct {
		pattern, typ string
		want         bool
	}{
		{"order.created", "order.created", true},
		{"order.created", "order.created.v2", false},
		{"order.created", "Order.Created", false},
		{"order.*", "order.created", true},
		{"order.*", "order.created.v2", true},
		{"order.*", "order", false},
		{"order.*", "order.", false},
		{"order.*", "orders.created", false},
		{"order.item.*", "order.item.added", true},
		{"order.item.*", "order.created", false},
		{"*", "order.created", true},
		{"*", "ping", true},
		{"*", "doorstep.endpoint.disabled", false},
		{"*", "doorstepper.x", true},
		{"doorstep.*", "doorstep.endpoint.disabled", true},
		{"doorstep.endpoint.disabled", "doorstep.endpoint.disabled", true},
		{"", "order", false},
	} {
		if got := MatchType(c.pattern, c.typ); got != c.want {
			t.Errorf("MatchType(%q, %q) = %v, want %v", c.pattern, c.typ, got, c.want)
		}
	}
}

func TestValidPattern(t *testing.T) {
	for _, ok := range []string{"*", "order.*", "order.created", "a.b.*", "doorstep.*", "заказ.*", strings.Repeat("a", 256)} {
		if err := ValidPattern(ok); err != nil {
			t.Errorf("%q is refused: %v", ok, err)
		}
	}
	for _, bad := range []string{"", ".*", "order.*.created", "*.created", "ord*", "order.**", "**", "a\nb", strings.Repeat("a", 257)} {
		if ValidPattern(bad) == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestValidType(t *testing.T) {
	for _, ok := range []string{"a", "order.created", "com.example.Order/v2", "заказ.created", "a b", strings.Repeat("a", 256)} {
		if err := ValidType(ok); err != nil {
			t.Errorf("%q is refused: %v", ok, err)
		}
	}
	for _, bad := range []string{"", strings.Repeat("a", 257), "a\x00", "a\r\nb", "a\tb", "a\x7f", "a\u0085", "a\u202eb", "\xff"} {
		if ValidType(bad) == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
