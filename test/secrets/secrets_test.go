package secrets

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/test/cluster"
	"github.com/doorstep-dev/doorstep/test/harness"
)

// Under a trickle of events, Secrets come and go; then the manager meets thousands of others; and in the end no key is to
// be seen but in Secrets.
func TestSecrets(t *testing.T) {
	s := newSite(t)
	t.Run("of endpoints", func(t *testing.T) {
		t.Run("come late, change, go and come back", func(t *testing.T) { t.Parallel(); s.comesAndGoes(t) })
		t.Run("sign for the overlap and no longer", func(t *testing.T) { t.Parallel(); s.overlaps(t) })
		t.Run("hold what is no key", func(t *testing.T) { t.Parallel(); s.wrongContent(t) })
		t.Run("are made once", func(t *testing.T) { t.Parallel(); s.made(t) })
		t.Run("are found without labels and of any type", func(t *testing.T) { t.Parallel(); s.found(t) })
	})
	t.Run("of others cost nothing", func(t *testing.T) { s.foreign(t) })
	t.Run("that are lost stay lost", func(t *testing.T) { s.stayLost(t) })
	t.Run("show nowhere", func(t *testing.T) { s.showNowhere(t) })
}

// signedWith is a spec whose one key is under an entry of a Secret.
func signedWith(url, secret, entry, more string) string {
	return fmt.Sprintf("url: %s/in\nsigning: {keys: [{name: main, secretKeyRef: {name: %s, key: %s}}]%s}", url, secret, entry, more)
}

func (s *site) comesAndGoes(t *testing.T) {
	const name, secret = "late", "late-key"
	r := newReceiver(t, nil)
	texts := make([]string, 3)
	for n := range texts {
		var key harness.Key
		key, texts[n] = s.key(name, n)
		r.learn(key)
	}
	since := time.Now()
	s.apply(t, name, signedWith(r.URL, secret, "key", ""))
	s.says(t, name, since, v1alpha1.ReasonSecretNotFound, "Secret late-key does not exist in namespace shop; create it with the signing key under key")
	s.inPlan(t, name)
	stop := s.trickle(t, name)
	s.held(t, name, r)

	since = s.put(t, secret, map[string]string{"key": texts[0]})
	r.signedBy(t, since, 0)
	s.await(t, name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	s.keys(t, name, texts[0])

	since = s.put(t, secret, map[string]string{"key": texts[1]})
	r.signedBy(t, since, 1, 0)
	s.keys(t, name, texts[1], texts[0])

	since = s.remove(t, secret)
	s.says(t, name, since, v1alpha1.ReasonSecretNotFound, "Secret late-key does not exist in namespace shop; create it with the signing key under key")
	s.held(t, name, r)

	since = s.put(t, secret, map[string]string{"key": texts[2]})
	r.signedBy(t, since, 2, 1, 0)
	s.says(t, name, time.Now(), v1alpha1.ReasonAccepted, "Live")
	s.keys(t, name, texts[2], texts[1], texts[0])
	s.delivered(t, name, r, stop())
}

// keys waits until an endpoint's status lists these keys: the one in force and the former ones, which sign for a day from
// when they were replaced.
func (s *site) keys(t *testing.T, name string, texts ...string) {
	t.Helper()
	cluster.Eventually(t, patience, fmt.Sprintf("endpoint %s to list %d keys", name, len(texts)), func() error {
		e, err := s.Endpoint(t, endpointKey(name))
		if err != nil {
			return err
		}
		var got []v1alpha1.SigningKeyStatus
		if e.Status.Signing != nil {
			got = e.Status.Signing.Keys
		}
		if len(got) != len(texts) {
			return fmt.Errorf("they are %+v", got)
		}
		for i, text := range texts {
			sum := sha256.Sum256([]byte(text))
			if want := "sha256:" + hex.EncodeToString(sum[:8]); got[i].Fingerprint != want || got[i].Name != "main" || got[i].SecretName != "late-key" {
				return fmt.Errorf("key %d is %+v, want fingerprint %s", i, got[i], want)
			}
			if i == 0 {
				if got[i].Origin != v1alpha1.SigningKeyReferenced || got[i].ExpiresAt != nil {
					return fmt.Errorf("the key in force is %+v", got[i])
				}
				continue
			}
			if at := got[i].ExpiresAt; got[i].Origin != v1alpha1.SigningKeyFormer || at == nil || at.Before(&metav1.Time{Time: time.Now().Add(23 * time.Hour)}) || at.After(time.Now().Add(24*time.Hour)) {
				return fmt.Errorf("former key %d is %+v", i, got[i])
			}
		}
		return nil
	})
}

func (s *site) overlaps(t *testing.T) {
	const name, secret = "brief", "brief-key"
	const overlap = 6 * time.Second
	r := newReceiver(t, nil)
	texts := make([]string, 3)
	for n := range texts {
		var key harness.Key
		key, texts[n] = s.key(name, n)
		r.learn(key)
	}
	s.put(t, secret, map[string]string{"key": texts[0]})
	s.apply(t, name, signedWith(r.URL, secret, "key", ", rotationOverlap: "+overlap.String()))
	s.await(t, name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	stop := s.trickle(t, name)

	since := s.put(t, secret, map[string]string{"key": texts[1]})
	r.signedBy(t, since, 1, 0)
	cluster.Eventually(t, patience, "the former key to end", func() error {
		all := r.seen()
		if by := all[len(all)-1].by; !slices.Equal(by, []int{1}) {
			return fmt.Errorf("the last request is signed by keys %v", by)
		}
		return nil
	})
	for _, q := range r.seen() {
		if q.at.Before(since.Add(overlap)) && slices.Equal(q.by, []int{1}) {
			t.Errorf("%v after the change a request is not signed by the former key, which signs for %v", q.at.Sub(since), overlap)
			break
		}
	}

	s.apply(t, name, signedWith(r.URL, secret, "key", ", rotationOverlap: 0s"))
	s.await(t, name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	since = s.put(t, secret, map[string]string{"key": texts[2]})
	r.signedBy(t, since, 2)
	s.delivered(t, name, r, stop())
}

func (s *site) wrongContent(t *testing.T) {
	const name, secret = "wrong", "wrong-key"
	r := newReceiver(t, nil)
	texts := make([]string, 3)
	for n := range texts {
		var key harness.Key
		key, texts[n] = s.key(name, n)
		r.learn(key)
	}
	since := s.put(t, secret, map[string]string{"other": texts[0]})
	s.apply(t, name, signedWith(r.URL, secret, "key", ""))
	s.says(t, name, since, v1alpha1.ReasonSecretKeyMissing, "Secret wrong-key has no key key; add it with the signing key")
	s.inPlan(t, name)
	stop := s.trickle(t, name)

	since = s.put(t, secret, map[string]string{"key": texts[0] + "\n"})
	s.says(t, name, since, v1alpha1.ReasonKeyInvalid, "trailing newline")
	s.held(t, name, r)
	since = s.put(t, secret, map[string]string{"key": texts[0], "next": texts[1]})
	r.signedBy(t, since, 0)
	s.says(t, name, time.Now(), v1alpha1.ReasonAccepted, "Live")

	// Another key of the same Secret: another reference, so that the former one ends.
	since = time.Now()
	s.apply(t, name, signedWith(r.URL, secret, "next", ""))
	r.signedBy(t, since, 1)

	since = s.put(t, secret, map[string]string{"next": "whsec_tooshort"})
	s.says(t, name, since, v1alpha1.ReasonKeyInvalid, "key next of Secret wrong-key is not a signing key")
	s.held(t, name, r)
	since = s.put(t, secret, map[string]string{"next": texts[2]})
	r.signedBy(t, since, 2, 1)
	s.says(t, name, time.Now(), v1alpha1.ReasonAccepted, "Live")
	s.delivered(t, name, r, stop())
}

// made: the key that Doorstep makes is its user's from then on, to change, to lose, and to bring back.
func (s *site) made(t *testing.T) {
	const name, secret = "made", "made-signing"
	r := newReceiver(t, nil)
	spec := "url: " + r.URL + "/in"
	s.apply(t, name, spec)
	s.await(t, name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	first := s.value(t, secret)
	s.hide("the key that was made", first)
	key, err := harness.ParseKey(first)
	if err != nil {
		t.Fatal(err)
	}
	r.learn(key)
	texts := []string{first, "", ""}
	for n := 1; n < len(texts); n++ {
		key, texts[n] = s.key(name, n)
		r.learn(key)
	}
	stop := s.trickle(t, name)
	r.signedBy(t, time.Now(), 0)

	since := s.put(t, secret, map[string]string{"key": texts[1]})
	r.signedBy(t, since, 1, 0)
	since = s.remove(t, secret)
	s.says(t, name, since, v1alpha1.ReasonSecretNotFound, "no other key is made in its place, since receivers know that one; restore it")
	s.held(t, name, r)
	s.absent(t, secret)
	since = s.put(t, secret, map[string]string{"key": texts[2]})
	r.signedBy(t, since, 2, 1, 0)
	s.says(t, name, time.Now(), v1alpha1.ReasonAccepted, "Live")
	s.delivered(t, name, r, stop())

	// An endpoint that is made again finds the key of before; its former values went with it.
	if err := s.Client.Delete(t.Context(), &v1alpha1.WebhookEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}); err != nil {
		t.Fatal(err)
	}
	since = time.Now()
	s.apply(t, name, spec)
	s.says(t, name, since, v1alpha1.ReasonAccepted, "Live")
	if got := s.value(t, secret); got != texts[2] {
		t.Error("the Secret does not hold what its user wrote")
	}
	writes, err := s.Writes(0)
	if err != nil {
		t.Fatal(err)
	}
	var by []string
	for _, w := range writes {
		if w.Resource == "secrets" && w.Name == secret && w.User == "system:serviceaccount:"+cluster.System+":doorstep-manager" {
			by = append(by, w.String())
		}
	}
	if len(by) != 1 || by[0] != "create secrets shop/made-signing by system:serviceaccount:doorstep-system:doorstep-manager: 201" {
		t.Errorf("the manager wrote the Secret so: %v; want one create", by)
	}
	since = s.remove(t, secret) // for stayLost
	s.says(t, name, since, v1alpha1.ReasonSecretNotFound, "no other key is made in its place")
}

// stayLost: a manager that starts anew knows from the plan that receivers know a key that is gone.
func (s *site) stayLost(t *testing.T) {
	s.manager.Restart(t)
	s.apply(t, "made", "url: https://hooks.example.com/moved") // which it has to look at
	found := s.await(t, "made", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonSecretNotFound)
	if want := "no other key is made in its place"; !strings.Contains(found.Message, want) {
		t.Errorf("it says %q, want %q in it", found.Message, want)
	}
	s.absent(t, "made-signing")
}

func (s *site) value(t *testing.T, secret string) string {
	t.Helper()
	var o corev1.Secret
	if err := s.Client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: secret}, &o); err != nil {
		t.Fatal(err)
	}
	return string(o.Data["key"])
}

func (s *site) absent(t *testing.T, secret string) {
	t.Helper()
	err := s.Client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: secret}, &corev1.Secret{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("Secret %s: %v, want that it does not exist", secret, err)
	}
}
