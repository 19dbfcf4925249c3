package kubeauth_test

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/doorstep-dev/doorstep/internal/ingest"
)

// Each verb of the API is one verb on one subresource, in the request's namespace, on the
// endpoint that it names.
func TestWhatIsAsked(t *testing.T) {
	d := newDoor(t)
	for _, v := range ingest.Verbs {
		q := ingest.Request{Verb: v, Namespace: "shop", Endpoint: "orders"}
		if status, who := d.ask(good, q); status != http.StatusOK || who != "system:serviceaccount:shop:producer" {
			t.Fatalf("%s: %d %s", v, status, who)
		}
		s := d.what[len(d.what)-1]
		a := s.ResourceAttributes
		if got := ingest.Verb(a.Verb + " " + a.Subresource); got != v || a.Group != "doorstep.dev" || a.Version != "v1alpha1" ||
			a.Resource != "webhookendpoints" || a.Namespace != "shop" || a.Name != "orders" {
			t.Errorf("%s is asked as %+v", v, a)
		}
		if s.User != "system:serviceaccount:shop:producer" || s.UID != "u-1" || len(s.Groups) != 1 || s.Extra["pod"][0] != "producer-0" {
			t.Errorf("%s is asked about %+v", v, s)
		}
	}
	if who, what := d.asked(); who != 1 || what != len(ingest.Verbs) {
		t.Errorf("%d questions who it is and %d what it may do", who, what)
	}
	if a := d.who[0].Audiences; len(a) != 1 || a[0] != "doorstep" {
		t.Errorf("the token is reviewed for %v", a)
	}
}

func TestWhoIsNotLetIn(t *testing.T) {
	for _, row := range []struct {
		name   string
		answer authenticationv1.TokenReviewStatus
		status int
		words  string
	}{
		{"a token that is not known", authenticationv1.TokenReviewStatus{Error: "[invalid bearer token]"}, 401, "--audience doorstep"},
		{"a token for another audience", authenticationv1.TokenReviewStatus{Error: "token audiences [\"vault\"] is invalid for the target audiences [\"doorstep\"]"}, 401, "--audience doorstep"},
		{"a token for the API server, from an authenticator that knows no audiences", producer(), 401, "--audience doorstep"},
		{"a token for another audience, from an authenticator that lets it pass", producer("vault"), 401, "--audience doorstep"},
		{"an authenticator that failed", authenticationv1.TokenReviewStatus{Error: "etcdserver: request timed out"}, 503, "Try again"},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := newDoor(t)
			d.tokens["other"] = row.answer
			if words := d.want(row.status, "other"); !strings.Contains(words, row.words) {
				t.Errorf("it is told %q, want %q in it", words, row.words)
			}
			d.want(http.StatusOK, good)
		})
	}
}

func TestWhatIsNotAllowed(t *testing.T) {
	d := newDoor(t)
	d.may = func(s authorizationv1.SubjectAccessReviewSpec) bool { return s.ResourceAttributes.Namespace == "shop" }
	d.want(http.StatusOK, good)
	for verb, role := range map[ingest.Verb]string{
		ingest.VerbSend: "doorstep-event-producer", ingest.VerbList: "doorstep-viewer", ingest.VerbReplay: "doorstep-operator", ingest.VerbErase: "doorstep-admin",
	} {
		status, words := d.ask(good, ingest.Request{Verb: verb, Namespace: "bank"})
		if status != http.StatusForbidden || !strings.Contains(words, role) || !strings.Contains(words, "namespace bank") {
			t.Errorf("%s: %d %q", verb, status, words)
		}
	}
}

func TestHeaders(t *testing.T) {
	d := newDoor(t)
	for _, row := range []struct {
		name    string
		headers []string
		words   string
	}{
		{"none", nil, "audience doorstep"},
		{"another scheme", []string{"Basic Zm9v"}, "audience doorstep"},
		{"no token", []string{"Bearer "}, "audience doorstep"},
		{"two", []string{"Bearer " + good, "Bearer " + good}, "one Authorization header"},
		{"an API key that is not known", []string{"Bearer dsk_ci_0123456789abcdef"}, "API key"},
	} {
		status, words := verdict(d.Authorize(request(row.headers...), send))
		if status != http.StatusUnauthorized || !strings.Contains(words, row.words) {
			t.Errorf("%s: %d %q", row.name, status, words)
		}
	}
	if who, _ := d.asked(); who != 0 {
		t.Errorf("%d of them were asked about", who)
	}
}

func TestAnswersAreKeptForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoor(t)
		questions := func(who, what int) {
			t.Helper()
			if a, b := d.asked(); a != who || b != what {
				t.Fatalf("%d and %d questions, want %d and %d", a, b, who, what)
			}
		}
		for range 100 {
			d.want(http.StatusOK, good)
		}
		questions(1, 1)
		time.Sleep(time.Minute)
		d.want(http.StatusOK, good)
		questions(2, 2)

		// Refusals are kept as well, and for less long: people mend them and try again.
		d.set(func(r *reviewer) { r.may = func(authorizationv1.SubjectAccessReviewSpec) bool { return false } })
		time.Sleep(time.Minute)
		for range 100 {
			d.want(http.StatusForbidden, good)
		}
		questions(3, 3)
		d.set(func(r *reviewer) { r.may = nil })
		time.Sleep(5 * time.Second)
		d.want(http.StatusOK, good)
		questions(3, 4)

		for range 100 {
			d.want(http.StatusUnauthorized, "bad")
		}
		questions(4, 4)
		d.set(func(r *reviewer) { r.tokens["bad"] = producer("doorstep") })
		time.Sleep(10 * time.Second)
		d.want(http.StatusOK, "bad")
	})
}

func TestAWithdrawnTokenEndsWithinAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoor(t)
		d.want(http.StatusOK, good)
		d.set(func(r *reviewer) { delete(r.tokens, good) })
		time.Sleep(time.Minute)
		d.want(http.StatusUnauthorized, good)
		// The good answer of before is forgotten: it does not come back with an outage.
		d.set(func(r *reviewer) { r.away = errors.New("connection refused") })
		time.Sleep(time.Minute)
		d.want(http.StatusServiceUnavailable, good)
	})
}

// Two tokens of one name may differ in what an authorizer looks at.
func TestOneNameTwoRights(t *testing.T) {
	d := newDoor(t)
	other := producer("doorstep")
	other.User.Extra = map[string]authenticationv1.ExtraValue{"pod": {"stranger-0"}}
	d.tokens["other"] = other
	d.may = func(s authorizationv1.SubjectAccessReviewSpec) bool { return s.Extra["pod"][0] == "producer-0" }
	d.want(http.StatusOK, good)
	d.want(http.StatusForbidden, "other")
}

func TestEqualQuestionsAreAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoor(t)
		d.slow = 100 * time.Millisecond
		var all sync.WaitGroup
		for range 200 {
			all.Go(func() {
				if status, words := d.ask(good, send); status != http.StatusOK {
					t.Errorf("%d %s", status, words)
				}
			})
		}
		all.Wait()
		if who, what := d.asked(); who != 1 || what != 1 {
			t.Errorf("%d and %d questions for one token", who, what)
		}
	})
}

// A flood of tokens that are not known is not passed on to the API server, and shuts
// nobody out who was let in before.
func TestAFloodOfStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoor(t)
		d.want(http.StatusOK, good)
		begun := time.Now()
		strangers := 0
		busy := 0
		for time.Since(begun) < 5*time.Minute {
			for range 300 {
				strangers++
				switch status, words := d.ask("stranger-"+strconv.Itoa(strangers), send); {
				case status == http.StatusServiceUnavailable && strings.Contains(words, "Try again"):
					busy++
				case status != http.StatusUnauthorized:
					t.Fatalf("a stranger is answered %d %s", status, words)
				}
			}
			time.Sleep(time.Second)
		}
		who, _ := d.asked()
		if most := 400 + 5*60*100 + 100; who > most || busy == 0 {
			t.Errorf("%d questions for %d strangers, want at most %d; %d were told to come again", who, strangers, most, busy)
		}
		// More than all that is kept of bad ones came, and the good one is still known.
		d.set(func(r *reviewer) { r.away = errors.New("connection refused") })
		d.want(http.StatusOK, good)
	})
}
