package deliver

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"golang.org/x/oauth2"

	"github.com/doorstep-dev/doorstep/internal/queue"
)

// tokenError says why no token can be had: a plain sentence that holds nothing of what
// the authorization server wrote, since its descriptions may quote what it was sent.
type tokenError struct{ message string }

// Error is the sentence.
func (e *tokenError) Error() string { return e.message }

// knownCodes are the errors of RFC 6749 §5.2. Other texts of a server are not repeated.
var knownCodes = map[string]string{
	"invalid_client":         "the token server refuses the client's id or secret (invalid_client)",
	"unauthorized_client":    "the token server does not let this client ask for tokens by client credentials (unauthorized_client)",
	"invalid_scope":          "the token server refuses the scopes (invalid_scope)",
	"invalid_request":        "the token server refuses the request: scopes, audience or clientAuthentication may be wrong (invalid_request)",
	"invalid_grant":          "the token server refuses the grant (invalid_grant)",
	"unsupported_grant_type": "the token server does not know client credentials (unsupported_grant_type)",
}

// refusal words an answer that holds no token.
func refusal(err error) error {
	var e *oauth2.RetrieveError
	if !errors.As(err, &e) || e.Response == nil {
		return &tokenError{"the token server's answer holds no token"}
	}
	status := e.Response.StatusCode
	switch message := knownCodes[e.ErrorCode]; {
	case message != "":
		return &tokenError{message}
	case status == 401:
		return &tokenError{"the token server refuses the client's id or secret (401)"}
	case status >= 300 && status < 400:
		return &tokenError{"the token server answered " + strconv.Itoa(status) + "; redirects are not followed"}
	case status < 300:
		return &tokenError{"the token server's answer holds no token"}
	}
	return &tokenError{"the token server answered " + strconv.Itoa(status)}
}

// unreachable words a request for a token that got no answer.
func unreachable(ctx context.Context, err error, secure bool) error {
	var r Result
	r.explain(err, context.Background(), ctx, secure, false)
	switch r.Reason {
	case ReasonDenied:
		return &tokenError{"the address of the token server is not allowed"}
	case ReasonTimeout:
		return &tokenError{"the token server did not answer in time"}
	}
	return &tokenError{"the token server can't be reached: " + strings.ReplaceAll(r.Message, "the receiver", "the token server")}
}

// failAuth ends an attempt without a token. sent tells what became of the request that
// was made with a former one.
func (r *Result) failAuth(err error, parent context.Context, sent queue.Sent) {
	var e *tokenError
	switch {
	case parent.Err() != nil:
		r.fail(ReasonShutdown, sent, "the worker was stopped during the attempt")
	case errors.As(err, &e):
		r.fail(ReasonAuth, sent, "no OAuth2 token: "+e.message)
	default:
		r.fail(ReasonAuth, sent, "no OAuth2 token: the token server did not answer within the attempt's timeout")
	}
}
