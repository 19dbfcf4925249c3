package compile

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

// Bounds of API keys. The Secret itself is at most 1 MiB.
const (
	maxAPIKeys      = 1000
	maxAPIKeyBytes  = 16 << 10
	maxAPIKeyNames  = 100
	reservedAPIKey  = "standalone" // the key of a data folder, which may do everything
	allAPIKeyValues = "*"
)

// apiKeyVerbs are the verbs a key may have, and those that one bound to endpoints may
// have: a send goes to every endpoint that takes the event, an erasure is felt by each of
// them, and the audit record is the namespace's.
var (
	apiKeyVerbs = []string{
		plan.KeySend, plan.KeyRead, plan.KeyPayload, plan.KeyReplay, plan.KeyManage, plan.KeyErase, plan.KeyAudit,
	}
	boundKeyVerbs = []string{plan.KeyRead, plan.KeyPayload, plan.KeyReplay, plan.KeyManage}
)

var (
	apiKeyID      = regexp.MustCompile(`^[a-z0-9]{1,63}$`)
	namespaceName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	endpointName  = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	// plainWord is what may be shown of an entry: a slip of the keyboard can put a key
	// where a name belongs.
	plainWord = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9.-]{0,30}$`)
	// documentMark begins another document, of which the parser would read nothing.
	documentMark = regexp.MustCompile(`(?m)^(---|\.\.\.)(\s|$)`)
)

// apiKeys reads the Secret of spec.ingest.apiKeysSecretRef, one key an entry, sorted by
// id. An entry that can't be used is reported, and only its key is unknown then.
func (c *compiler) apiKeys(o *v1alpha1.DeliveryPool) []plan.APIKey {
	ref := deref(o.Spec.Ingest).APIKeysSecretRef
	if ref == nil {
		return nil
	}
	fault := func(reason, format string, args ...any) {
		c.report(Problem{
			Kind: KindPool, Namespace: o.Namespace, Name: o.Name, Field: "spec.ingest.apiKeysSecretRef", Reason: reason,
			Message: fmt.Sprintf(format, args...),
		})
	}
	secret := c.secrets[plan.EndpointKey{Namespace: o.Namespace, Name: ref.Name}]
	if secret == nil {
		fault(v1alpha1.ReasonSecretNotFound, "Secret %s does not exist in namespace %s, so that no key of it is known; create it (doorstep apikey new writes its entries), or remove apiKeysSecretRef",
			ref.Name, o.Namespace)
		return nil
	}
	ids := entriesOf(secret)
	if len(ids) > maxAPIKeys {
		fault(v1alpha1.ReasonKeyInvalid, "Secret %s has %d entries; only the first %d by name are used: remove expired keys", ref.Name, len(ids), maxAPIKeys)
		ids = ids[:maxAPIKeys]
	}
	var keys []plan.APIKey
	for _, id := range ids {
		text, _ := secretValue(secret, id)
		key, err := apiKey(id, text)
		if err != nil {
			fault(v1alpha1.ReasonKeyInvalid, "Secret %s, %s: %s; until then its key is not known", ref.Name, entryWords(id), err)
			continue
		}
		keys = append(keys, key)
	}
	return keys
}

// entriesOf are the names of a Secret's entries, sorted.
func entriesOf(s *corev1.Secret) []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(s.Data)), maps.Keys(s.StringData))
	slices.Sort(names)
	return slices.Compact(names)
}

// entryWords name an entry, unless its name may be a key.
func entryWords(id string) string {
	if plainWord.MatchString(id) {
		return "entry " + id
	}
	return "an entry with a name that is no id"
}

// CheckAPIKey says what is wrong with an entry of a Secret with API keys, whose name is the
// key's id; nil for nothing.
func CheckAPIKey(id, text string) error {
	_, err := apiKey(id, text)
	return err
}

// apiKey reads one entry. Its errors hold nothing of what stands in it but plain words.
func apiKey(id, text string) (plan.APIKey, error) {
	switch {
	case !apiKeyID.MatchString(id):
		return plan.APIKey{}, errors.New("the name of an entry is the key's id, 1 to 63 characters of a-z and 0-9; rename it")
	case id == reservedAPIKey:
		return plan.APIKey{}, fmt.Errorf("the id %s is that of a data folder's own key; choose another", reservedAPIKey)
	}
	members, err := apiKeyMembers(text)
	if err != nil {
		return plan.APIKey{}, err
	}
	key := plan.APIKey{ID: id}
	if key.SHA256, err = members.sum(); err != nil {
		return plan.APIKey{}, err
	}
	if key.Namespaces, err = members.names("namespaces", "a namespace", namespaceName); err != nil {
		return plan.APIKey{}, err
	}
	if members["endpoints"] != nil {
		if key.Endpoints, err = members.names("endpoints", "an endpoint", endpointName); err != nil {
			return plan.APIKey{}, err
		}
		if key.Endpoints[0] == allAPIKeyValues {
			key.Endpoints = nil
		}
	}
	if key.Verbs, err = members.verbs(len(key.Endpoints) > 0); err != nil {
		return plan.APIKey{}, err
	}
	key.ExpiresAt, err = members.expiry()
	return key, err
}

// keyMembers are the members of an entry, each still JSON.
type keyMembers map[string]json.RawMessage

// apiKeyMembers takes an entry apart. Member names count as they are written, which
// encoding/json into a struct would not hold them to.
func apiKeyMembers(text string) (keyMembers, error) {
	const form = "it must be YAML with the members sha256, namespaces, verbs, and perhaps endpoints and expiresAt"
	if len(text) > maxAPIKeyBytes {
		return nil, fmt.Errorf("it is longer than %d KiB; %s", maxAPIKeyBytes>>10, form)
	}
	if documentMark.MatchString(strings.TrimPrefix(text, "---")) {
		return nil, errors.New("it has more than one YAML document; " + form)
	}
	var m keyMembers
	// The parsers' own words quote what they can't read.
	if b, err := yaml.YAMLToJSONStrict([]byte(text)); err != nil || json.Unmarshal(b, &m) != nil || m == nil {
		return nil, errors.New(form + ", each once; texts such as \"*\" stand in double quotes")
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if !slices.Contains([]string{"sha256", "namespaces", "verbs", "endpoints", "expiresAt"}, name) {
			if !plainWord.MatchString(name) {
				name = "with a name of other characters"
			}
			return nil, fmt.Errorf("the member %s is not known; %s", name, form)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if string(m[name]) == "null" {
			// Perhaps its values were commented out. Without endpoints or expiresAt the key would be good for more.
			return nil, fmt.Errorf("the member %s is written down and left empty; give it a value, or remove it", name)
		}
	}
	return m, nil
}

// sum is the hash of the key.
func (m keyMembers) sum() (sum [32]byte, err error) {
	var text string
	raw, err := hex.DecodeString(m.text("sha256", &text))
	if err != nil || len(raw) != len(sum) {
		return sum, errors.New("sha256 must be the SHA-256 of the whole key, dsk_ included, as 64 hexadecimal digits in double quotes")
	}
	return [32]byte(raw), nil
}

// text decodes a member that is a text into v, and gives it; anything else is empty.
func (m keyMembers) text(name string, v *string) string {
	if json.Unmarshal(m[name], v) != nil {
		return ""
	}
	return *v
}

// names is a list of names or "*", which is given alone. It is sorted.
func (m keyMembers) names(member, what string, pattern *regexp.Regexp) ([]string, error) {
	list, all, err := m.list(member)
	if err != nil {
		return nil, err
	}
	if all {
		return []string{allAPIKeyValues}, nil
	}
	for i, name := range list {
		if len(name) > 63 || !pattern.MatchString(name) {
			return nil, fmt.Errorf("%s[%d] is not the name of %s", member, i, what)
		}
	}
	return list, nil
}

// verbs are those of the key, in the order of apiKeyVerbs.
func (m keyMembers) verbs(bound bool) ([]string, error) {
	list, all, err := m.list("verbs")
	if err != nil {
		return nil, err
	}
	allowed := apiKeyVerbs
	if bound {
		allowed = boundKeyVerbs
	}
	if all {
		return allowed, nil
	}
	for _, verb := range list {
		switch {
		case slices.Contains(allowed, verb):
		case slices.Contains(apiKeyVerbs, verb):
			return nil, fmt.Errorf("a key that is bound to endpoints can't have the verb %s, which reaches beyond them; its verbs may be %s",
				verb, strings.Join(allowed, ", "))
		default:
			return nil, fmt.Errorf("verbs must be of %s, or \"*\" for all", strings.Join(allowed, ", "))
		}
	}
	return slices.DeleteFunc(slices.Clone(allowed), func(v string) bool { return !slices.Contains(list, v) }), nil
}

// list is a member that is a list of texts, sorted and each once, or "*" (alone or as the
// list's one entry).
func (m keyMembers) list(member string) (list []string, all bool, err error) {
	var text string
	switch {
	case m[member] == nil:
		return nil, false, fmt.Errorf("%s is missing; give a list, or \"*\" for all", member)
	case m.text(member, &text) == allAPIKeyValues:
		return nil, true, nil
	case json.Unmarshal(m[member], &list) != nil || len(list) == 0 || len(list) > maxAPIKeyNames:
		return nil, false, fmt.Errorf("%s must be a list of 1 to %d texts, or \"*\" for all", member, maxAPIKeyNames)
	case slices.Contains(list, allAPIKeyValues):
		if len(list) > 1 {
			return nil, false, fmt.Errorf("%s has other entries beside \"*\"; keep the one or the others", member)
		}
		return nil, true, nil
	}
	slices.Sort(list)
	return slices.Compact(list), false, nil
}

// expiry is when the key ends; zero for never.
func (m keyMembers) expiry() (time.Time, error) {
	if m["expiresAt"] == nil {
		return time.Time{}, nil
	}
	var text string
	t, err := time.Parse(time.RFC3339, m.text("expiresAt", &text))
	if err != nil {
		return time.Time{}, errors.New("expiresAt must be a time such as 2027-01-31T00:00:00Z")
	}
	return t.UTC(), nil
}
