package ingest_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/doorstep-dev/doorstep/internal/ingest"
)

// case DUP-05: one id of two sources is two events, each found by what its producer calls it.
func TestOneIDOfTwoSources(t *testing.T) {
	a := newAPI(t)
	const body = `{"id":"7","source":"/%s","type":"order.created","data":{}}`
	seen := map[string]bool{}
	for _, source := range []string{"shop", "till"} {
		w := a.post(http.StatusAccepted, fmt.Sprintf(body, source), nil)
		seen[decode[ingest.Receipt](t, w.Body.Bytes()).WebhookID] = true
		a.post(http.StatusOK, fmt.Sprintf(body, source), nil)
		if e := get[ingest.Event](a, "events?id=7&source=/"+source); e.Source != "/"+source {
			t.Errorf("found is %+v", e)
		}
	}
	if len(seen) != 2 {
		t.Errorf("the webhook-ids are %v", seen)
	}
	a.want(http.StatusNotFound, a.call(http.MethodGet, "/v1/namespaces/shop/events?id=7", "", nil))
}

// case DUP-07: whatever the id, it is kept exactly, found by itself, and nothing of it gets into a path.
func TestAnyIDIsFoundAgain(t *testing.T) {
	a := newAPI(t)
	list := []string{"a.b", "a b", "../../x", "a/b", "é😀", "a", "A", strings.Repeat("x", 256), "nul\x00crlf\r\nx: y", "__proto__",
		"' OR 1=1", "msg_abcdefghijklmnopqrstuvwxyz", "%2e%2e", "a\u202eb"}
	for i, id := range list {
		body := `{"id":` + encode(t, id) + `,"type":"a","data":` + fmt.Sprint(i) + `}`
		receipt := decode[ingest.Receipt](t, a.post(http.StatusAccepted, body, nil).Body.Bytes())
		if receipt.ID != id {
			t.Errorf("%q is answered as %q", id, receipt.ID)
		}
		if e := get[ingest.Event](a, "events?"+url.Values{"id": {id}}.Encode()); e.ID != id || e.WebhookID != receipt.WebhookID {
			t.Errorf("%q is found as %+v", id, e)
		}
		if e := get[ingest.Event](a, "events/"+receipt.WebhookID); e.ID != id {
			t.Errorf("%s is %q, want %q", receipt.WebhookID, e.ID, id)
		}
	}
}

// case DUP-08: an id is a text, or the Idempotency-Key header where there is none; a number is not the text of it.
func TestWhatIsNoID(t *testing.T) {
	a := newAPI(t)
	for _, id := range []string{"", `"id":null,`, `"id":123,`, `"id":["1"],`, `"id":{},`, `"id":true,`, `"id":"",`} {
		w := a.post(http.StatusBadRequest, `{`+id+`"type":"a","data":1}`, nil)
		if a.problem(w).Field != "id" {
			t.Errorf("%s: %s", id, w.Body)
		}
	}
	a.post(http.StatusAccepted, `{"type":"a","data":1}`, header{"Idempotency-Key": "123"})
	a.post(http.StatusOK, `{"type":"a","data":1}`, header{"Idempotency-Key": "123"})
	a.post(http.StatusConflict, `{"id":"123","type":"a","data":1}`, nil)
}
