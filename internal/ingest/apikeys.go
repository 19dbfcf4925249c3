package ingest

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/doorstep-dev/doorstep/internal/plan"
)

// APIKey is an API key as the server keeps it: never the key itself.
type APIKey struct {
	// ID is the part between the underscores: a-z and 0-9. It may be logged.
	ID string
	// SHA256 is the hash of the whole key, dsk_ included.
	SHA256 [sha256.Size]byte
}

const keyPrefix = "dsk_"

var errKeyForm = errors.New("an API key has the form dsk_<id>_<random>, with an id of a-z and 0-9")

// NewAPIKey makes a key dsk_<id>_<64 random hex digits>. The text is to be shown or written once.
func NewAPIKey(id string) (text string, key APIKey, err error) {
	var random [32]byte
	if _, err := rand.Read(random[:]); err != nil {
		return "", APIKey{}, err
	}
	text = keyPrefix + id + "_" + hex.EncodeToString(random[:])
	key, err = ParseAPIKey(text)
	return text, key, err
}

// ParseAPIKey gives what the server keeps of a key. Its errors don't hold the key.
func ParseAPIKey(text string) (APIKey, error) {
	id, ok := keyID(text)
	if !ok {
		return APIKey{}, errKeyForm
	}
	return APIKey{ID: id, SHA256: sha256.Sum256([]byte(text))}, nil
}

func keyID(text string) (string, bool) {
	rest, ok := strings.CutPrefix(text, keyPrefix)
	if !ok {
		return "", false
	}
	id, random, ok := strings.Cut(rest, "_")
	if !ok || id == "" || len(id) > 63 || len(random) < 16 {
		return "", false
	}
	for i := range len(id) {
		if c := id[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return "", false
		}
	}
	return id, true
}

// Keys lets in whoever shows one of the keys in Authorization: Bearer. Each key may do everything.
func Keys(keys ...APIKey) Authorizer {
	known := newAPIKeys(keys)
	known.plan = func() *plan.Plan { return nil }
	return known
}

// PlanKeys lets in whoever shows one of the masters, which may do everything, or one of the keys of the plan that holds
// now, for what that key is good for. Of two keys with one id the master is the one. While there is no plan, others can't
// be told good from bad, and are asked to come again.
func PlanKeys(now func() *plan.Plan, masters ...APIKey) Authorizer {
	known := newAPIKeys(masters)
	known.plan, known.fromPlan = now, true
	return known
}

type apiKeys struct {
	plan     func() *plan.Plan
	fromPlan bool
	masters  map[string]APIKey
}

func newAPIKeys(masters []APIKey) apiKeys {
	known := apiKeys{masters: make(map[string]APIKey, len(masters))}
	for _, k := range masters {
		known.masters[k.ID] = k
	}
	return known
}

// verbsOf are the verbs of the API that each verb of a key stands for.
var verbsOf = map[string][]Verb{
	plan.KeySend:    {VerbSend},
	plan.KeyRead:    {VerbRead, VerbList},
	plan.KeyPayload: {VerbReadPayload},
	plan.KeyReplay:  {VerbReplay},
	plan.KeyManage:  {VerbEnable, VerbRetry, VerbTest},
	plan.KeyErase:   {VerbErase},
	plan.KeyAudit:   {VerbAudit},
}

func (k apiKeys) Authorize(r *http.Request, q Request) (Caller, error) {
	text, id, problem := shownKey(r)
	if problem != nil {
		return Caller{}, problem
	}
	hash := sha256.Sum256([]byte(text))
	if master, ok := k.masters[id]; ok {
		if subtle.ConstantTimeCompare(hash[:], master.SHA256[:]) != 1 {
			return Caller{}, unknownKey()
		}
		return Caller{Name: "key:" + id}, nil
	}
	p := k.plan()
	if p == nil && k.fromPlan {
		return Caller{}, errNoPlan // which keys are good can't be told
	}
	// An unknown id costs the same as a wrong key, and is answered the same.
	key, found := ofPlan(p, id)
	if subtle.ConstantTimeCompare(hash[:], key.SHA256[:]) != 1 || !found {
		return Caller{}, unknownKey()
	}
	if problem := permits(key, q, time.Now()); problem != nil {
		return Caller{}, problem
	}
	return Caller{Name: "key:" + id, Endpoints: key.Endpoints}, nil
}

func unknownKey() *Problem { return unauthorized("The API key is not known here.") }

// shownKey is the key of a request's Authorization header, and its id.
func shownKey(r *http.Request) (text, id string, problem *Problem) {
	headers := r.Header["Authorization"]
	switch len(headers) {
	case 0:
		return "", "", unauthorized("Send an API key: Authorization: Bearer dsk_<id>_<random>.")
	case 1:
	default:
		return "", "", unauthorized("Send one Authorization header only.")
	}
	scheme, text, _ := strings.Cut(headers[0], " ")
	text = strings.TrimSpace(text)
	id, ok := keyID(text)
	if !strings.EqualFold(scheme, "Bearer") || !ok {
		return "", "", unauthorized("The Authorization header is not Bearer dsk_<id>_<random>.")
	}
	return text, id, nil
}

// ofPlan finds a key by its id; the plan has them sorted.
func ofPlan(p *plan.Plan, id string) (plan.APIKey, bool) {
	if p == nil {
		return plan.APIKey{}, false
	}
	keys := p.Pool.APIKeys
	i, found := slices.BinarySearchFunc(keys, id, func(k plan.APIKey, id string) int { return strings.Compare(k.ID, id) })
	if !found {
		return plan.APIKey{}, false
	}
	return keys[i], true
}

// permits says why a key is not good for a request; nil if it is. now is wall time.
func permits(key plan.APIKey, q Request, now time.Time) *Problem {
	switch {
	case !key.ExpiresAt.IsZero() && !now.Before(key.ExpiresAt):
		return newProblem(http.StatusUnauthorized, "key-expired", "Authorization",
			"The API key has expired; use the one that took its place.")
	case !slices.Contains(key.Namespaces, "*") && !slices.Contains(key.Namespaces, q.Namespace):
		return forbidden("namespace", "The API key is not good for this namespace; use another key, or add the namespace "+
			"to its entry.")
	case len(key.Endpoints) > 0 && q.Endpoint != "" && !slices.Contains(key.Endpoints, q.Endpoint):
		return forbidden("endpoint", "The API key is not good for this endpoint; use another key, or add the endpoint "+
			"to its entry.")
	}
	for _, verb := range key.Verbs {
		if slices.Contains(verbsOf[verb], q.Verb) {
			return nil
		}
	}
	return forbidden("Authorization", "The API key is not good for this; its entry must have the verb "+keyVerbFor(q.Verb)+".")
}

// keyVerbFor is what a key must have for a verb of the API.
func keyVerbFor(v Verb) string {
	for name, verbs := range verbsOf {
		if slices.Contains(verbs, v) {
			return name
		}
	}
	return "that names it"
}
