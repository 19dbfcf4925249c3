package secrets

import (
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/test/cluster"
	"github.com/doorstep-dev/doorstep/test/harness"
)

const (
	foreignSecrets    = 3000
	foreignNamespaces = 10
	// growth is by how much they may grow the manager's memory.
	growth = 20 << 20
)

// foreign: thousands of large Secrets that no endpoint refers to grow a manager's memory little, while they come and when it
// starts among them. Of each manager the peak is compared, which no garbage collection hides. case CS179
func (s *site) foreign(t *testing.T) {
	s.manager.Restart(t)
	before := s.peak(t, "a manager before")
	s.createForeign(t)
	if during := s.peak(t, "the same manager among them"); during-before > growth {
		t.Errorf("the manager's peak grew by %d MiB while they were created, more than %d MiB", (during-before)>>20, growth>>20)
	}
	s.manager.Restart(t)
	if after := s.peak(t, "a manager that starts among them"); after-before > growth {
		t.Errorf("a manager that starts has a peak that is greater by %d MiB than without them, more than %d MiB", (after-before)>>20, growth>>20)
	}
}

// peak lets the manager do some work, so that its cache is full, waits until its peak is one, and returns it in bytes.
func (s *site) peak(t *testing.T, who string) int64 {
	t.Helper()
	s.apply(t, "busy", fmt.Sprintf("url: https://hooks.example.com/%d", time.Now().UnixNano()))
	s.await(t, "busy", v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	peak := int64(0)
	since := time.Now()
	cluster.Eventually(t, patience, "the manager's memory to grow no more", func() error {
		now, err := harness.PeakRSS(s.manager.Pid())
		if err != nil {
			t.Fatal(err)
		}
		if now != peak {
			peak, since = now, time.Now()
		}
		if quiet := time.Since(since); quiet < 3*time.Second {
			return fmt.Errorf("it grew %v ago", quiet)
		}
		return nil
	})
	resident, err := harness.RSS(s.manager.Pid())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: peak %.1f MiB, resident %.1f MiB", who, float64(peak)/(1<<20), float64(resident)/(1<<20))
	return peak
}

// createForeign makes the Secrets: most of 32 KiB, every tenth of 100, and every third as kubectl apply leaves it, with all
// of its content once more in an annotation.
func (s *site) createForeign(t *testing.T) {
	t.Helper()
	config := s.Config()
	config.QPS = -1
	config.ContentType = runtime.ContentTypeProtobuf
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for n := range foreignNamespaces {
		if err := s.EnsureNamespace(t.Context(), foreignNamespace(n), nil); err != nil {
			t.Fatal(err)
		}
	}
	start := time.Now()
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(8)
	for n := range foreignSecrets {
		g.Go(func() error { return createOne(ctx, c, n) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d Secrets were created in %v", foreignSecrets, time.Since(start).Round(time.Second))
}

func foreignNamespace(n int) string { return fmt.Sprintf("foreign-%d", n) }

func createOne(ctx context.Context, c client.Client, n int) error {
	size := 32 << 10
	if n%10 == 0 {
		size = 100 << 10
	}
	var seed [32]byte
	seed[0], seed[1] = byte(n), byte(n>>8)
	content := make([]byte, size)
	_, _ = rand.NewChaCha8(seed).Read(content) // it never fails
	o := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: foreignNamespace(n % foreignNamespaces), Name: fmt.Sprintf("secret-%04d", n),
			Labels: map[string]string{"app.kubernetes.io/name": fmt.Sprintf("app-%d", n), "app.kubernetes.io/managed-by": "Helm", "helm.sh/chart": "app-1.2.3"},
		},
		Data: map[string][]byte{"content": content},
	}
	if n%3 == 0 {
		o.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: base64.StdEncoding.EncodeToString(content)}
	}
	if err := c.Create(ctx, o); err != nil {
		return fmt.Errorf("creating Secret %s/%s: %w", o.Namespace, o.Name, err)
	}
	return nil
}
