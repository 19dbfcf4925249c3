package compile

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

const keyText = "dsk_ci_00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

var (
	keySum  = sha256.Sum256([]byte(keyText))
	keyHash = hex.EncodeToString(keySum[:])
)

// keyWorld is a pool with API keys in the Secret api-keys.
func keyWorld(entries map[string]string) Objects {
	in := world()
	pool := v1alpha1.DeliveryPool{ObjectMeta: meta("doorstep-system", "default")}
	pool.Spec.Ingest = &v1alpha1.Ingest{APIKeysSecretRef: &v1alpha1.SecretReference{Name: "api-keys"}}
	in.Pools = []v1alpha1.DeliveryPool{pool}
	if entries != nil {
		in.Secrets = append(in.Secrets, secret("doorstep-system", "api-keys", entries))
	}
	return in
}

// entry is a whole entry; a line replaces the member it begins with, or is added.
func entry(lines ...string) string {
	members := []string{`sha256: "` + keyHash + `"`, "namespaces: [shop]", "verbs: [send]"}
	for _, l := range lines {
		name, _, _ := strings.Cut(l, ":")
		members = slices.DeleteFunc(members, func(m string) bool { return strings.HasPrefix(m, name+":") })
		members = append(members, l)
	}
	return strings.Join(members, "\n")
}

func without(member string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(entry(), "\n"), func(m string) bool { return strings.HasPrefix(m, member) }), "\n")
}

func TestAPIKeysThatAreTaken(t *testing.T) {
	all := []string{"send", "read", "payload", "replay", "manage", "erase", "audit"}
	many := make([]string, 100)
	for i := range many {
		many[i] = fmt.Sprintf("ns-%02d", i)
	}
	for _, row := range []struct {
		name, text string
		change     func(*plan.APIKey)
	}{
		{"the least", entry(), func(*plan.APIKey) {}},
		{"JSON", `{"sha256":"` + keyHash + `","namespaces":["shop"],"verbs":["send"]}`, func(*plan.APIKey) {}},
		{"a document mark first", "---\n" + entry(), func(*plan.APIKey) {}},
		{"an upper-case hash", entry(`sha256: "` + strings.ToUpper(keyHash) + `"`), func(*plan.APIKey) {}},
		{"all namespaces", entry(`namespaces: "*"`), func(k *plan.APIKey) { k.Namespaces = []string{"*"} }},
		{"all namespaces as a list", entry(`namespaces: ["*"]`), func(k *plan.APIKey) { k.Namespaces = []string{"*"} }},
		{"namespaces are sorted, each once", entry("namespaces: [shop, bank, shop]"), func(k *plan.APIKey) { k.Namespaces = []string{"bank", "shop"} }},
		{"100 namespaces", entry("namespaces: [" + strings.Join(many, ", ") + "]"), func(k *plan.APIKey) { k.Namespaces = many }},
		{"each verb", entry("verbs: [audit, erase, manage, replay, payload, read, send, send]"), func(k *plan.APIKey) { k.Verbs = all }},
		{"all verbs", entry(`verbs: "*"`), func(k *plan.APIKey) { k.Verbs = all }},
		{"endpoints", entry("verbs: [read, replay]", "endpoints: [orders, audit.v2]"), func(k *plan.APIKey) {
			k.Verbs, k.Endpoints = []string{"read", "replay"}, []string{"audit.v2", "orders"}
		}},
		{"endpoints with all verbs have those that don't reach beyond", entry(`verbs: "*"`, "endpoints: [orders]"), func(k *plan.APIKey) {
			k.Verbs, k.Endpoints = []string{"read", "payload", "replay", "manage"}, []string{"orders"}
		}},
		{"all endpoints", entry(`endpoints: "*"`), func(*plan.APIKey) {}},
		{"an expiry", entry(`expiresAt: "2027-01-31T01:00:00+01:00"`), func(k *plan.APIKey) { k.ExpiresAt = time.Date(2027, 1, 31, 0, 0, 0, 0, time.UTC) }},
		{"an expiry without quotes", entry("expiresAt: 2027-01-31T00:00:00Z"), func(k *plan.APIKey) { k.ExpiresAt = time.Date(2027, 1, 31, 0, 0, 0, 0, time.UTC) }},
		{"an expiry in the past is judged where it is shown", entry("expiresAt: 2020-01-31T00:00:00Z"), func(k *plan.APIKey) { k.ExpiresAt = time.Date(2020, 1, 31, 0, 0, 0, 0, time.UTC) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			want := plan.APIKey{ID: "ci", SHA256: keySum, Namespaces: []string{"shop"}, Verbs: []string{"send"}}
			row.change(&want)
			r := Compile(keyWorld(map[string]string{"ci": row.text}), nil, start, Options{})
			if len(r.Problems) != 0 || !reflect.DeepEqual(r.Plan.Pool.APIKeys, []plan.APIKey{want}) {
				t.Errorf("keys %+v, want %+v; problems %v", r.Plan.Pool.APIKeys, want, r.Problems)
			}
		})
	}
}

// What is wrong is named, with the way out; nothing of a key or its hash is.
func TestAPIKeysThatAreRefused(t *testing.T) {
	for _, row := range []struct{ name, id, text, want string }{
		{"an id with a capital", "Ci", entry(), "entry Ci: the name of an entry is the key's id"},
		{"the whole key as the id", keyText, entry(), "an entry with a name that is no id: the name of an entry"},
		{"the id of the data folder's key", "standalone", entry(), "entry standalone: the id standalone is that of a data folder's"},
		{"nothing", "ci", "", "entry ci: it must be YAML"},
		{"a text", "ci", keyText, "entry ci: it must be YAML"},
		{"a list", "ci", "[" + keyHash + "]", "it must be YAML"},
		{"no YAML", "ci", "sha256: [" + keyText, "it must be YAML"},
		{"an alias where a star was meant", "ci", entry("namespaces: *"), `texts such as "*" stand in double quotes`},
		{"a member twice", "ci", entry() + "\nverbs: [read]", "each once"},
		{"two documents", "ci", entry() + "\n---\nsha256: x", "it has more than one YAML document"},
		{"a member that isn't known", "ci", entry("namespace: [shop]"), "the member namespace is not known; it must be YAML with the members sha256,"},
		{"a member in other letters", "ci", entry("Verbs: [read]"), "the member Verbs is not known"},
		{"a key for a member", "ci", entry(keyText + ": x"), "the member with a name of other characters is not known"},
		{"too long", "ci", entry() + strings.Repeat("\n", 16<<10), "it is longer than 16 KiB"},
		{"endpoints that were commented out", "ci", entry("verbs: [read]", "endpoints:\n# - orders"), "the member endpoints is written down and left empty"},
		{"an expiry that was taken out", "ci", entry("expiresAt:"), "the member expiresAt is written down and left empty"},
		{"namespaces left empty", "ci", entry("namespaces: null"), "the member namespaces is written down and left empty"},
		{"no hash", "ci", without("sha256"), "sha256 must be the SHA-256 of the whole key"},
		{"the key for its hash", "ci", entry("sha256: " + keyText), "sha256 must be"},
		{"half a hash", "ci", entry(`sha256: "` + keyHash[:32] + `"`), "sha256 must be"},
		{"a hash with a space", "ci", entry(`sha256: "` + keyHash + ` "`), "sha256 must be"},
		{"a number for a hash", "ci", entry("sha256: " + strings.Repeat("1", 64)), "sha256 must be"},
		{"no namespaces", "ci", without("namespaces"), `namespaces is missing; give a list, or "*" for all`},
		{"an empty list of namespaces", "ci", entry("namespaces: []"), "namespaces must be a list of 1 to 100 texts"},
		{"101 namespaces", "ci", entry("namespaces: [" + strings.Repeat("a, ", 100) + "b]"), "namespaces must be a list of 1 to 100 texts"},
		{"one namespace that is no list", "ci", entry("namespaces: shop"), "namespaces must be a list"},
		{"a namespace that is none", "ci", entry("namespaces: [shop, Shop_1]"), "namespaces[0] is not the name of a namespace"},
		{"a pattern of namespaces", "ci", entry(`namespaces: ["shop-*"]`), "namespaces[0] is not the name of a namespace"},
		{"a star and a namespace", "ci", entry(`namespaces: ["*", shop]`), `namespaces has other entries beside "*"`},
		{"a number for a namespace", "ci", entry("namespaces: [1]"), "namespaces must be a list"},
		{"no verbs", "ci", without("verbs"), "verbs is missing"},
		{"a verb that is none", "ci", entry("verbs: [read, " + keyText + "]"), `verbs must be of send, read, payload, replay, manage, erase, audit, or "*" for all`},
		{"no endpoints in the list", "ci", entry("endpoints: []"), "endpoints must be a list"},
		{"an endpoint with its namespace", "ci", entry("endpoints: [shop/orders]"), "endpoints[0] is not the name of an endpoint"},
		{"send with endpoints", "ci", entry("endpoints: [orders]"), "a key that is bound to endpoints can't have the verb send"},
		{"erase with endpoints", "ci", entry("verbs: [read, erase]", "endpoints: [orders]"), "can't have the verb erase, which reaches beyond them; its verbs may be read, payload, replay, manage"},
		{"a day", "ci", entry("expiresAt: 2027-01-31"), "expiresAt must be a time such as 2027-01-31T00:00:00Z"},
		{"a number for a time", "ci", entry("expiresAt: 1800000000"), "expiresAt must be a time"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := Compile(keyWorld(map[string]string{row.id: row.text, "good": entry()}), nil, start, Options{})
			if len(r.Plan.Pool.APIKeys) != 1 || r.Plan.Pool.APIKeys[0].ID != "good" {
				t.Errorf("keys %+v, want the good one alone", r.Plan.Pool.APIKeys)
			}
			if len(r.Problems) != 1 {
				t.Fatalf("problems %v, want one", r.Problems)
			}
			p := r.Problems[0]
			if p.Kind != KindPool || p.Field != "spec.ingest.apiKeysSecretRef" || p.Reason != v1alpha1.ReasonKeyInvalid ||
				!strings.HasPrefix(p.Message, "Secret api-keys, ") || !strings.Contains(p.Message, row.want) {
				t.Errorf("problem %+v, want %q in it", p, row.want)
			}
			if lower := strings.ToLower(p.Message); strings.Contains(lower, keyText[:10]) || strings.Contains(lower, keyHash[:8]) {
				t.Errorf("the message holds a part of the key or its hash: %s", p.Message)
			}
		})
	}
}

func TestAPIKeysAreSortedWhereverTheyStand(t *testing.T) {
	in := keyWorld(map[string]string{"b": entry(), "a": entry()})
	in.Secrets[1].Data = map[string][]byte{"c": []byte(entry()), "a": []byte("beaten by stringData")}
	r := Compile(in, nil, start, Options{})
	var ids []string
	for _, k := range r.Plan.Pool.APIKeys {
		ids = append(ids, k.ID)
	}
	if !slices.Equal(ids, []string{"a", "b", "c"}) || len(r.Problems) != 0 {
		t.Errorf("ids %v, problems %v", ids, r.Problems)
	}
}

func TestAPIKeysAreBounded(t *testing.T) {
	entries := map[string]string{}
	for i := range maxAPIKeys + 1 {
		entries[fmt.Sprintf("k%04d", i)] = entry()
	}
	r := Compile(keyWorld(entries), nil, start, Options{})
	if len(r.Plan.Pool.APIKeys) != maxAPIKeys || len(r.Problems) != 1 || !strings.Contains(r.Problems[0].Message, "has 1001 entries") {
		t.Errorf("%d keys, problems %v", len(r.Plan.Pool.APIKeys), r.Problems)
	}
}

// Keys whose Secret is away are not known: nobody is let in by what nobody can see.
func TestAPIKeysWithoutTheirSecret(t *testing.T) {
	before := Compile(keyWorld(map[string]string{"ci": entry()}), nil, start, Options{}).Plan
	r := Compile(keyWorld(nil), before, start.Add(time.Second), Options{})
	if len(r.Plan.Pool.APIKeys) != 0 || len(r.Problems) != 1 || r.Problems[0].Reason != v1alpha1.ReasonSecretNotFound {
		t.Errorf("keys %v, problems %v", r.Plan.Pool.APIKeys, r.Problems)
	}
	if r.Plan.Version != before.Version+1 {
		t.Errorf("version %d after %d", r.Plan.Version, before.Version)
	}
	// A Secret of the same name elsewhere is not it.
	in := keyWorld(nil)
	in.Secrets = append(in.Secrets, corev1.Secret{ObjectMeta: meta("shop", "api-keys"), StringData: map[string]string{"ci": entry()}})
	if r := Compile(in, nil, start, Options{}); len(r.Plan.Pool.APIKeys) != 0 {
		t.Errorf("keys of another namespace's Secret: %v", r.Plan.Pool.APIKeys)
	}
}
