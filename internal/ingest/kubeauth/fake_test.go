package kubeauth_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/internal/ingest"
	"github.com/doorstep-dev/doorstep/internal/ingest/kubeauth"
)

// reviewer stands in for the API server. Tokens are those of users, for their audience.
type reviewer struct {
	client.Client // nil: nothing else may be asked

	mu     sync.Mutex
	tokens map[string]authenticationv1.TokenReviewStatus
	// may decides about what is asked; nil allows everything.
	may func(authorizationv1.SubjectAccessReviewSpec) bool
	// away answers every question with an error, slow keeps it waiting.
	away error
	slow time.Duration
	// who and what are the questions that came.
	who  []authenticationv1.TokenReviewSpec
	what []authorizationv1.SubjectAccessReviewSpec
}

func (r *reviewer) Create(ctx context.Context, o client.Object, _ ...client.CreateOption) error {
	r.mu.Lock()
	slow := r.slow
	r.mu.Unlock()
	select {
	case <-time.After(slow):
	case <-ctx.Done():
		return ctx.Err()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch o := o.(type) {
	case *authenticationv1.TokenReview:
		r.who = append(r.who, o.Spec)
		if r.away == nil {
			o.Status = r.tokens[o.Spec.Token]
		}
	case *authorizationv1.SubjectAccessReview:
		r.what = append(r.what, o.Spec)
		o.Status.Allowed = r.away == nil && (r.may == nil || r.may(o.Spec))
	default:
		return fmt.Errorf("nobody may create a %T", o)
	}
	return r.away
}

func (r *reviewer) set(change func(*reviewer)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(r)
}

// asked gives how many questions came of each kind.
func (r *reviewer) asked() (who, what int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.who), len(r.what)
}

// producer is what the API server says of a good token.
func producer(audiences ...string) authenticationv1.TokenReviewStatus {
	return authenticationv1.TokenReviewStatus{
		Authenticated: true, Audiences: audiences,
		User: authenticationv1.UserInfo{
			Username: "system:serviceaccount:shop:producer", UID: "u-1", Groups: []string{"system:serviceaccounts"},
			Extra: map[string]authenticationv1.ExtraValue{"pod": {"producer-0"}},
		},
	}
}

// door is an authorizer with the reviewer behind it.
type door struct {
	*reviewer
	ingest.Authorizer
	t   *testing.T
	log bytes.Buffer
}

const good = "good-token"

func newDoor(t *testing.T) *door {
	t.Helper()
	d := &door{t: t, reviewer: &reviewer{tokens: map[string]authenticationv1.TokenReviewStatus{good: producer("doorstep")}}}
	_, key, err := ingest.NewAPIKey("ci")
	if err != nil {
		t.Fatal(err)
	}
	d.Authorizer = kubeauth.New(kubeauth.Options{
		Client: d.reviewer, APIKeys: ingest.Keys(key),
		Log: funcr.New(func(_, args string) { d.log.WriteString(args + "\n") }, funcr.Options{}),
	})
	return d
}

func request(headers ...string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/v1/namespaces/shop/events", http.NoBody)
	for _, h := range headers {
		r.Header.Add("Authorization", h)
	}
	return r
}

var send = ingest.Request{Verb: ingest.VerbSend, Namespace: "shop"}

// ask makes one call with a token and gives the status that it is answered with, 200 for
// one that is let in, and the words.
func (d *door) ask(token string, q ingest.Request) (int, string) {
	return verdict(d.Authorize(request("Bearer "+token), q))
}

func verdict(caller ingest.Caller, err error) (int, string) {
	var p *ingest.Problem
	switch {
	case err == nil:
		return http.StatusOK, caller.Name
	case errors.As(err, &p):
		return p.Status, p.Detail
	}
	return 0, err.Error()
}

func (d *door) want(status int, token string) string {
	d.t.Helper()
	got, words := d.ask(token, send)
	if got != status {
		d.t.Fatalf("%s is answered %d %q, want %d", token, got, words, status)
	}
	return words
}

// jwt is a token that says when it ends, as ServiceAccount tokens do.
func jwt(end time.Time) string {
	claims := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp":%d}`, end.Unix()))
	return "e30." + claims + ".c2ln"
}
