package kubeauth

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
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
	// patience is how long callers who were let in before wait for an API server that is
	// slow, and goOnFor how long it is not asked about them again when it has failed.
	patience, goOnFor = time.Second, 10 * time.Second
	// maxKept bounds the good answers that are kept, and the bad ones, to each kind of
	// question.
	maxKept = 10_000
	// askTimeout bounds one question, askRate and askBurst all of them: a second. A worker that
	// starts again asks about every caller anew, two questions each.
	askTimeout        = 5 * time.Second
	askRate, askBurst = 100, 400
	// tryAfter is when callers who could not be decided about come again.
	tryAfter = 2 * time.Second
)

// Options are what an authorizer needs.
type Options struct {
	// Client asks the API server. It holds back nothing by itself: the authorizer bounds what
	// it asks.
	Client client.Client
	// APIKeys decides about callers that show a key dsk_….
	APIKeys ingest.Authorizer
	Log     logr.Logger
	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

// New makes an authorizer, which is safe for concurrent use.
func New(o Options) ingest.Authorizer {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &authorizer{
		Options: o, asker: newAsker(o.Now, o.Log),
		users: newMemory("who", o.Now), rights: newMemory("may", o.Now),
	}
}

type authorizer struct {
	Options
	asker         *asker
	users, rights *memory
}

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
	may, err := a.allowed(r.Context(), who, req)
	if err != nil {
		return ingest.Caller{}, err
	}
	if !may.good {
		return ingest.Caller{}, ingest.Forbidden(refusal(who.user.Username, req))
	}
	return ingest.Caller{Name: who.user.Username}, nil
}

// refusal says what somebody lacks, and which role of the installation has it.
func refusal(user string, req ingest.Request) string {
	verb, subresource, _ := strings.Cut(string(req.Verb), " ")
	return fmt.Sprintf("%s may not %s webhookendpoints/%s in namespace %s: bind a role that allows it there, such as ClusterRole %s.",
		user, verb, subresource, req.Namespace, roleFor(req.Verb))
}

// roleFor names the least role that comes with the installation and has a verb.
func roleFor(v ingest.Verb) string {
	switch v {
	case ingest.VerbSend:
		return "doorstep-event-producer"
	case ingest.VerbRead, ingest.VerbList:
		return "doorstep-viewer"
	case ingest.VerbErase:
		return "doorstep-admin"
	default:
		return "doorstep-operator"
	}
}
