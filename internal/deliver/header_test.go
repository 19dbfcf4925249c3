package deliver

import (
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
