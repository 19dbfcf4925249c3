package deliver

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http/httpguts"

	"github.com/doorstep-dev/doorstep/internal/event"
)

func FuzzSendable(f *testing.F) {
	for _, h := range [][2]string{{"ce-id", "1"}, {"ce-x", "a\r\nb"}, {"ce-", ""}, {"Ce-Id", "1"}, {"ce-ſ", "1"}, {"ce-subject", "Euro%20€"}, {"webhook-id", "1"}} {
		f.Add(h[0], h[1])
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		if !sendable(&event.Header{Name: name, Value: value}) {
			return
		}
		if name[:3] != "ce-" || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			t.Errorf("%q: %q is taken", name, value)
		}
	})
}

// The CRD refuses the same names, so that nobody learns of one only when it is compiled.
func TestReservedHeadersAreThoseOfTheCRD(t *testing.T) {
	text, err := os.ReadFile("../../config/crd/doorstep.dev_webhookendpoints.yaml")
	if err != nil {
		t.Fatal(err)
	}
	flat := strings.Join(strings.Fields(string(text)), " ")
	m := regexp.MustCompile(`\(self\.lowerAscii\(\)\.replace\('+_'+, '+-'+\) in \[([^]]*'stripe-signature'[^]]*)\]\) && !self\.lowerAscii\(\)\.replace\('+_'+, '+-'+\)\.matches\('+\^\(([^)]*)\)`).FindStringSubmatch(flat)
	if m == nil {
		t.Fatal("the rule isn't found")
	}
	var names []string
	for _, name := range strings.Split(m[1], ", ") {
		names = append(names, strings.Trim(name, "'"))
	}
	if !slices.Equal(slices.Sorted(slices.Values(names)), slices.Sorted(slices.Values(reservedHeaders))) {
		t.Errorf("the CRD has %q", names)
	}
	if got := strings.Split(m[2], "|"); !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(reservedPrefixes))) {
		t.Errorf("the CRD has prefixes %q", got)
	}
}
