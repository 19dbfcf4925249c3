package kubeauth

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/ingest"
)

const (
	// How long answers count: who somebody is, that a token is no good, what somebody may do,
	// and what not. Refusals are short, since they are what people mend and try again.
	knownFor, unknownFor   = time.Minute, 10 * time.Second
	allowedFor, refusedFor = time.Minute, 5 * time.Second
	// lastGoodFor is how long a good answer serves while no other can be had.
	lastGoodFor = time.Hour
	// maxKept bounds the answers that are kept, of each kind.
	maxKept = 10_000
	// askTimeout bounds one question, askRate and askBurst all of them.
	askTimeout        = 5 * time.Second
	askRate, askBurst = 50, 100
)

// Options are what an authorizer needs.
type Options struct {
	// Client asks the API server.
	Client client.Client
	// APIKeys decides about callers that show a key dsk_….
	APIKeys ingest.Authorizer
	Log     logr.Logger
	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

// New makes an authorizer.
func New(o Options) ingest.Authorizer {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &authorizer{
		Options: o,
		users:   cache.NewLRUExpireCacheWithClock(maxKept, clockOf(o.Now)),
		rights:  cache.NewLRUExpireCacheWithClock(maxKept, clockOf(o.Now)),
		budget:  rate.NewLimiter(askRate, askBurst),
	}
}

type clockOf func() time.Time

func (c clockOf) Now() time.Time { return c() }

type authorizer struct {
	Options
	users, rights *cache.LRUExpireCache
	asking        singleflight.Group
	budget        *rate.Limiter
}

// answer is what was decided, and until when it counts without asking again.
type answer struct {
	good  bool
	fresh time.Time
	// user is set for a good token, expires its own end; why for a bad one.
	user    *authenticationv1.UserInfo
	expires time.Time
	why     string
}

// errBusy means that too much is to be asked.
var errBusy = errors.New("too many callers that are not known yet; try again")

// Authorize decides about one call.
func (a *authorizer) Authorize(r *http.Request, req ingest.Request) (ingest.Caller, error) {
	headers := r.Header["Authorization"]
	if len(headers) > 1 {
		return ingest.Caller{}, ingest.Unauthorized("Send one Authorization header only.")
	}
	scheme, token, _ := strings.Cut(strings.Join(headers, ""), " ")
	token = strings.TrimSpace(token)
	switch {
	case !strings.EqualFold(scheme, "Bearer") || token == "":
		return ingest.Caller{}, ingest.Unauthorized("Send Authorization: Bearer with a ServiceAccount token for the audience " + v1alpha1.TokenAudience + ", or with an API key.")
	case strings.HasPrefix(token, "dsk_"):
		return a.APIKeys.Authorize(r, req)
	}
	who, err := a.authenticate(r.Context(), token)
	if err != nil {
		return ingest.Caller{}, err
	}
	if !who.good {
		return ingest.Caller{}, ingest.Unauthorized(who.why)
	}
	may, err := a.allowed(r.Context(), who.user, req)
	if err != nil {
		return ingest.Caller{}, err
	}
	if !may.good {
		verb, resource, _ := strings.Cut(string(req.Verb), " ")
		return ingest.Caller{}, ingest.Forbidden(fmt.Sprintf("%s may not %s webhookendpoints/%s in namespace %s: bind a role that allows it, such as ClusterRole doorstep-event-producer to send events.",
			who.user.Username, verb, resource, req.Namespace))
	}
	return ingest.Caller{Name: who.user.Username}, nil
}

// authenticate says who a token is of.
func (a *authorizer) authenticate(ctx context.Context, token string) (answer, error) {
	sum := sha256.Sum256([]byte(token))
	who, err := a.decide(ctx, a.users, string(sum[:]), func(ctx context.Context) (answer, time.Duration, error) {
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{v1alpha1.TokenAudience}}}
		if err := a.Client.Create(ctx, review); err != nil {
			return answer{}, 0, fmt.Errorf("ask who the caller is: %w", err)
		}
		if review.Status.Authenticated {
			return answer{good: true, user: &review.Status.User, expires: expiry(token)}, knownFor, nil
		}
		return answer{why: "The token is not known to the cluster, has expired, or is not for the audience " + v1alpha1.TokenAudience +
			": ask for one with that audience (a projected volume with audience " + v1alpha1.TokenAudience + ", or kubectl create token --audience " + v1alpha1.TokenAudience + ")."}, unknownFor, nil
	})
	if err == nil && who.good && !who.expires.IsZero() && a.Now().After(who.expires) {
		who = answer{why: "The token has expired: send a fresh one."}
	}
	return who, err
}

// allowed says whether somebody may do what a request asks for.
func (a *authorizer) allowed(ctx context.Context, user *authenticationv1.UserInfo, req ingest.Request) (answer, error) {
	verb, subresource, _ := strings.Cut(string(req.Verb), " ")
	key := strings.Join([]string{user.Username, user.UID, strings.Join(user.Groups, ","), verb, subresource, req.Namespace, req.Endpoint}, "\x00")
	return a.decide(ctx, a.rights, key, func(ctx context.Context) (answer, time.Duration, error) {
		extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
		for k, v := range user.Extra {
			extra[k] = authorizationv1.ExtraValue(v)
		}
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: v1alpha1.GroupName, Version: v1alpha1.GroupVersion.Version, Resource: "webhookendpoints", Subresource: subresource,
				Verb: verb, Namespace: req.Namespace, Name: req.Endpoint,
			},
		}}
		if err := a.Client.Create(ctx, review); err != nil {
			return answer{}, 0, fmt.Errorf("ask what the caller may do: %w", err)
		}
		if review.Status.Allowed {
			return answer{good: true}, allowedFor, nil
		}
		return answer{}, refusedFor, nil
	})
}

// decide gives a kept answer while it is fresh, else asks; if that fails, the last good
// answer.
func (a *authorizer) decide(ctx context.Context, kept *cache.LRUExpireCache, key string, ask func(context.Context) (answer, time.Duration, error)) (answer, error) {
	var last answer
	if v, ok := kept.Get(key); ok {
		if last = v.(answer); a.Now().Before(last.fresh) {
			return last, nil
		}
	}
	v, err, _ := a.asking.Do(key, func() (any, error) {
		if !a.budget.AllowN(a.Now(), 1) {
			return answer{}, errBusy
		}
		// The question is everybody's who waits for it: one caller that leaves doesn't end it.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
		defer cancel()
		got, freshFor, err := ask(ctx)
		if err != nil {
			return answer{}, err
		}
		got.fresh = a.Now().Add(freshFor)
		keep := freshFor
		if got.good {
			keep = lastGoodFor
		}
		kept.Add(key, got, keep)
		return got, nil
	})
	if err == nil {
		return v.(answer), nil
	}
	if last.good {
		a.Log.V(1).Info("The API server can't be asked; the last answer counts", "error", err.Error())
		return last, nil
	}
	return answer{}, err
}

// expiry is when a token that the API server has found good ends, as it says itself; zero
// if it doesn't say.
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
