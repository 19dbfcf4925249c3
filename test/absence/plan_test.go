package absence

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/test/cluster"
)

var index = v1alpha1.PlanIndexName(cluster.DefaultPool.Name)

// secret reads a Secret of the plan.
func (s *site) secret(t *testing.T, name string) (*corev1.Secret, error) {
	t.Helper()
	var o corev1.Secret
	return &o, s.Client.Get(t.Context(), types.NamespacedName{Namespace: cluster.DefaultPool.Namespace, Name: name}, &o)
}

// shards gives the endpoints, as namespace/name, that each Secret of a shard holds.
func (s *site) shards(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for n := range v1alpha1.PlanShards {
		name := v1alpha1.PlanShardName(cluster.DefaultPool.Name, n)
		o, err := s.secret(t, name)
		if err != nil {
			continue
		}
		r, err := gzip.NewReader(bytes.NewReader(o.Data[v1alpha1.PlanSecretKey]))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		var shard struct {
			Endpoints []struct{ Namespace, Name string }
		}
		if err := json.Unmarshal(text, &shard); err != nil {
			t.Fatal(err)
		}
		for _, e := range shard.Endpoints {
			out[name] = append(out[name], e.Namespace+"/"+e.Name)
		}
	}
	return out
}

// twoOf gives two shards with endpoints of shop and none of lab.
func (s *site) twoOf(t *testing.T) (names, endpoints []string) {
	t.Helper()
	for name, all := range s.shards(t) {
		foreign := false
		for _, e := range all {
			foreign = foreign || keyOf(e).Namespace == lab
		}
		if !foreign && len(names) < 2 {
			names, endpoints = append(names, name), append(endpoints, all...)
		}
	}
	if len(names) < 2 {
		t.Fatal("there are no two shards with endpoints of namespace shop alone")
	}
	return names, endpoints
}

// remove deletes a Secret of the plan.
func (s *site) remove(t *testing.T, name string) {
	t.Helper()
	o := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultPool.Namespace, Name: name}}
	if err := s.Client.Delete(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// orphan makes the Secret of a shard that no index speaks of, as a manager leaves it that ends between two steps.
func (s *site) orphan(t *testing.T) string {
	t.Helper()
	model, err := s.secret(t, index)
	if err != nil {
		t.Fatal(err)
	}
	for n := range v1alpha1.PlanShards {
		name := v1alpha1.PlanShardName(cluster.DefaultPool.Name, n)
		if _, err := s.secret(t, name); !apierrors.IsNotFound(err) {
			continue
		}
		o := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultPool.Namespace, Name: name, Labels: model.Labels, OwnerReferences: model.OwnerReferences}, Type: model.Type, Data: model.Data}
		if err := s.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		return name
	}
	t.Fatal("there is every shard")
	return ""
}

// gone waits until there is no such Secret.
func (s *site) gone(t *testing.T, name string) {
	t.Helper()
	cluster.Eventually(t, 30*time.Second, "the manager to remove Secret "+name, func() error {
		if _, err := s.secret(t, name); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there (%w)", err)
		}
		return nil
	})
}

// damage changes a bit in the middle of a Secret of the plan.
func (s *site) damage(t *testing.T, name string) {
	t.Helper()
	o, err := s.secret(t, name)
	if err != nil {
		t.Fatal(err)
	}
	b := o.Data[v1alpha1.PlanSecretKey]
	b[len(b)/2] ^= 1
	if err := s.Client.Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// mended waits until a Secret of the plan holds what it held.
func (s *site) mended(t *testing.T, name string, want []byte) {
	t.Helper()
	cluster.Eventually(t, 30*time.Second, "the manager to mend Secret "+name, func() error {
		o, err := s.secret(t, name)
		if err == nil && !bytes.Equal(o.Data[v1alpha1.PlanSecretKey], want) {
			return errors.New("it is another")
		}
		return err
	})
}

// inVolume waits until the worker's volume is as Secrets of the plan are.
func (s *site) inVolume(t *testing.T, secrets []string) {
	t.Helper()
	for _, name := range secrets {
		file := "index"
		if name != index {
			file = strings.TrimPrefix(name, index+"-")
		}
		cluster.Eventually(t, 30*time.Second, "file "+file+" of the worker's volume to be as its Secret", func() error {
			b, err := os.ReadFile(filepath.Join(s.pool.Plan(), file))
			o, missing := s.secret(t, name)
			switch {
			case missing != nil && errors.Is(err, os.ErrNotExist):
				return nil
			case missing != nil || err != nil:
				return fmt.Errorf("the Secret: %w, the file: %w", missing, err)
			case !bytes.Equal(b, o.Data[v1alpha1.PlanSecretKey]):
				return errors.New("they differ")
			}
			return nil
		})
	}
}
