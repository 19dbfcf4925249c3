package kubeauth

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/ingest"
)

// authenticate says who a token is of.
func (a *authorizer) authenticate(ctx context.Context, token string) (answer, error) {
	sum := sha256.Sum256([]byte(token))
	return a.asker.decide(ctx, a.users, string(sum[:]), func(ctx context.Context) (answer, error) {
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{v1alpha1.TokenAudience}}}
		if err := a.Client.Create(ctx, review); err != nil {
			return answer{}, fmt.Errorf("ask who the caller is: %w", err)
		}
		return a.identity(token, &review.Status)
	})
}

// identity reads the answer to a TokenReview.
func (a *authorizer) identity(token string, s *authenticationv1.TokenReviewStatus) (answer, error) {
	end := expiry(token)
	switch {
	// One that knows nothing of audiences names none, and the token is for the API server.
	case s.Authenticated && slices.Contains(s.Audiences, v1alpha1.TokenAudience):
		key, err := json.Marshal(s.User)
		if err != nil {
			return answer{}, err
		}
		sum := sha256.Sum256(key)
		return answer{good: true, user: &s.User, userKey: string(sum[:]), expires: end, freshFor: knownFor}, nil
	case !s.Authenticated && isFault(s.Error):
		return answer{}, errors.New("ask who the caller is: the API server could not find out")
	case !end.IsZero() && !a.Now().Before(end):
		return answer{why: "The token has expired: read it anew from its file before each call, since the kubelet renews it there.", freshFor: unknownFor}, nil
	}
	return answer{freshFor: unknownFor, why: "The token is not for the audience " + v1alpha1.TokenAudience + ", or the cluster does not know it (any more): " +
		"ask for one with that audience (a projected volume with audience: " + v1alpha1.TokenAudience + ", or kubectl create token NAME --audience " + v1alpha1.TokenAudience + ")."}, nil
}

// isFault tells an authenticator that failed from one that refused: the API server gives
// both as an error in words. To ask again does no harm where it is wrong.
func isFault(text string) bool {
	return slices.ContainsFunc([]string{"timed out", "timeout", "deadline exceeded", "connection refused", "connection reset", "unavailable", "no leader"}, func(s string) bool {
		return strings.Contains(text, s)
	})
}

// expiry is when a token ends by what it says of itself; zero if it doesn't say. It decides
// only about tokens that the API server has answered for.
func expiry(token string) time.Time {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	b, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}
	}
	var claims struct {
		Expires int64 `json:"exp"`
	}
	if json.Unmarshal(b, &claims) != nil || claims.Expires <= 0 {
		return time.Time{}
	}
	return time.Unix(claims.Expires, 0)
}

// allowed says whether somebody may do what a request asks for.
func (a *authorizer) allowed(ctx context.Context, who answer, req ingest.Request) (answer, error) {
	key := strings.Join([]string{who.userKey, string(req.Verb), req.Namespace, req.Endpoint}, "\x00")
	return a.asker.decide(ctx, a.rights, key, func(ctx context.Context) (answer, error) {
		verb, subresource, _ := strings.Cut(string(req.Verb), " ")
		extra := make(map[string]authorizationv1.ExtraValue, len(who.user.Extra))
		for k, v := range who.user.Extra {
			extra[k] = authorizationv1.ExtraValue(v)
		}
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: who.user.Username, UID: who.user.UID, Groups: who.user.Groups, Extra: extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: v1alpha1.GroupName, Version: v1alpha1.GroupVersion.Version, Resource: "webhookendpoints", Subresource: subresource,
				Verb: verb, Namespace: req.Namespace, Name: req.Endpoint,
			},
		}}
		if err := a.Client.Create(ctx, review); err != nil {
			return answer{}, fmt.Errorf("ask what the caller may do: %w", err)
		}
		if review.Status.Allowed {
			return answer{good: true, freshFor: allowedFor}, nil
		}
		return answer{freshFor: refusedFor}, nil
	})
}
