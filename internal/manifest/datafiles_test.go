package manifest

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/compile"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/sign"
)

func TestPlanFile(t *testing.T) {
	dir := t.TempDir()
	if p, err := ReadPlan(dir); p != nil || err != nil {
		t.Fatalf("with no file: %v, %v; want neither", p, err)
	}
	for version := range uint64(3) {
		want := &plan.Plan{Format: plan.Format, Version: version, Tombstones: []plan.Tombstone{{DeletedAt: time.Unix(1, 0).UTC()}}}
		if err := WritePlan(dir, want); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadPlan(dir); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("read %+v, %v; want %+v", got, err, want)
		}
	}
	onlyFile(t, dir, PlanFile)

	path := filepath.Join(dir, PlanFile)
	for name, tc := range map[string]struct{ text, want string }{
		"a newer format": {`{"format":99}`, "format 99"},
		"half a file":    {`{"format":1,"endp`, "not JSON"},
		"an empty file":  {``, "not JSON"},
	} {
		if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := ReadPlan(dir)
		if p != nil || err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, %v; want an error that names the file and says %q", name, p, err, tc.want)
		}
		if b, _ := os.ReadFile(path); string(b) != tc.text {
			t.Errorf("%s: the file was changed", name)
		}
	}
}

// onlyFile wants one file in dir, for its owner alone.
func onlyFile(t *testing.T, dir, name string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 || entries[0].Name() != name {
		t.Fatalf("files %v, want %s alone", entries, name)
	}
	info, err := entries[0].Info()
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v (%v), want 0600", info.Mode(), err)
	}
}

func plain(name string, keys ...v1alpha1.SigningKey) v1alpha1.WebhookEndpoint {
	e := v1alpha1.WebhookEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	e.Spec.URL = "https://example.com"
	if keys != nil {
		e.Spec.Signing = &v1alpha1.Signing{Keys: keys}
	}
	return e
}

func TestSigningKeysAreMadeOnce(t *testing.T) {
	dir := t.TempDir()
	own := v1alpha1.SigningKey{Name: "k", SecretKeyRef: v1alpha1.SecretKeyReference{Name: "mine", Key: "key"}}
	in := compile.Objects{
		Endpoints: []v1alpha1.WebhookEndpoint{plain("orders"), plain("own", own), plain("given")},
		Secrets:   []corev1.Secret{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "given-signing"}}},
		Complete:  true,
	}
	add, made, err := EnsureSigningKeys(dir, in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(add) != 1 || len(made) != 1 || made[0].Name != "orders-signing" || made[0].Namespace != "shop" {
		t.Fatalf("added %d and made %d, want the one of orders", len(add), len(made))
	}
	key := made[0].StringData["key"]
	if _, err := sign.ParseKey(key); err != nil {
		t.Errorf("the key made is none: %v", err)
	}
	onlyFile(t, filepath.Join(dir, "secrets", "shop"), "orders-signing.yaml")

	add, made, err = EnsureSigningKeys(dir, in, nil)
	if err != nil || len(made) != 0 || len(add) != 1 || add[0].StringData["key"] != key {
		t.Errorf("the second time: added %d, made %d, %v; want the same key", len(add), len(made), err)
	}
	// The file is a manifest like any other.
	s := newLoader(t, filepath.Join(dir, "secrets")).Load()
	if len(s.Problems) != 0 || len(s.Objects.Secrets) != 1 || s.Objects.Secrets[0].StringData["key"] != key {
		t.Errorf("read as a manifest: %d Secrets, problems %v", len(s.Objects.Secrets), s.Problems)
	}
}

// A key is made for the scheme of the endpoint, and none where nothing signs. When the
// scheme changes the key stays as it is, and Compile says so if it doesn't fit.
func TestSigningKeysFitTheirScheme(t *testing.T) {
	dir := t.TempDir()
	hexKey := v1alpha1.Signing{Scheme: "HMAC", HMAC: &v1alpha1.HMAC{Header: "X-Signature", KeyEncoding: "Hex"}}
	in := compile.Objects{Complete: true}
	for name, s := range map[string]v1alpha1.Signing{
		"github": {Scheme: "GitHub"}, "stripe": {Scheme: "Stripe"}, "hex": hexKey, "none": {Scheme: "None"},
	} {
		e := plain(name)
		e.Spec.Signing = &s
		in.Endpoints = append(in.Endpoints, e)
	}
	add, made, err := EnsureSigningKeys(dir, in, nil)
	if err != nil || len(made) != 3 {
		t.Fatalf("made %d, %v; want 3", len(made), err)
	}
	in.Secrets = add
	r := compile.Compile(in, nil, time.Unix(0, 0), compile.Options{})
	if len(r.Problems) != 0 {
		t.Errorf("problems %+v", r.Problems)
	}
	for i := range in.Endpoints {
		if in.Endpoints[i].Name == "github" {
			in.Endpoints[i].Spec.Signing = &hexKey
		}
	}
	in.Secrets = nil
	add, made, err = EnsureSigningKeys(dir, in, r.Plan)
	if err != nil || len(made) != 0 {
		t.Fatalf("made %d, %v; want the keys of before", len(made), err)
	}
	in.Secrets = add
	r = compile.Compile(in, r.Plan, time.Unix(1, 0), compile.Options{})
	if len(r.Problems) != 1 || r.Problems[0].Name != "github" || r.Problems[0].Reason != v1alpha1.ReasonKeyInvalid {
		t.Errorf("problems %+v, want KeyInvalid of github alone", r.Problems)
	}
}

func TestASigningKeyFileIsNeverOverwritten(t *testing.T) {
	for name, text := range map[string]string{
		"half a file":       "apiVersion: v1\nkind: Sec",
		"an empty file":     "",
		"another Secret":    "apiVersion: v1\nkind: Secret\nmetadata: {name: other-signing, namespace: shop}\nstringData: {key: s3cret}\n",
		"a bomb of aliases": "apiVersion: v1\nkind: Secret\nmetadata: {name: orders-signing, namespace: shop, labels: {a: &a " + strings.Repeat("x", 100_000) + "}, finalizers: [" + strings.Repeat("*a,", 200) + "]}\nstringData: {key: s3cret}\n",
		"something unknown": "stringData: {key: s3cret}\nmore: s3cret\n",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := write(t, dir, "secrets/shop/orders-signing.yaml", text)
			in := compile.Objects{Endpoints: []v1alpha1.WebhookEndpoint{plain("orders"), plain("other")}, Complete: true}
			add, made, err := EnsureSigningKeys(dir, in, nil)
			if err == nil || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("error %v, want one that names the file and nothing in it", err)
			}
			if len(add) != 1 || len(made) != 1 || made[0].Name != "other-signing" {
				t.Errorf("added %d, made %d; want the other endpoint served", len(add), len(made))
			}
			if b, _ := os.ReadFile(path); string(b) != text {
				t.Error("the file was changed")
			}
		})
	}
	dir := t.TempDir()
	path := write(t, dir, "x", "first")
	if err := CreateFile(path, []byte("second")); !errors.Is(err, os.ErrExist) {
		t.Errorf("creating over a file: %v, want that it exists", err)
	}
	if b, _ := os.ReadFile(path); string(b) != "first" {
		t.Errorf("the file holds %q", b)
	}
}

// A Secret that was in the manifests and is away for a moment must not be replaced:
// what is signed with a new key fails at every receiver.
func TestNoKeyIsMadeInPlaceOfOneThatIsKnown(t *testing.T) {
	in := compile.Objects{Endpoints: []v1alpha1.WebhookEndpoint{plain("orders")}, Complete: true}
	in.Secrets = []corev1.Secret{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders-signing"}, StringData: map[string]string{"key": sign.NewKey()}}}
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	previous := compile.Compile(in, nil, now, compile.Options{}).Plan
	in.Secrets = nil
	for range 3 {
		dir := t.TempDir()
		add, made, err := EnsureSigningKeys(dir, in, previous)
		if err == nil || !strings.Contains(err.Error(), "put it back") || len(add)+len(made) != 0 {
			t.Fatalf("added %d, made %d, %v; want none and the way out", len(add), len(made), err)
		}
		previous = compile.Compile(in, previous, now, compile.Options{}).Plan
		if p := previous.Endpoints[0].Problem; p == nil || p.Reason != v1alpha1.ReasonSecretNotFound {
			t.Fatalf("problem %+v, want SecretNotFound", p)
		}
	}
}
