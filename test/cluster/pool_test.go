package cluster

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
)

// A manager makes a pool's StatefulSet, and the Pool runs it: its worker becomes ready and is reported, comes back after
// it was killed, and is replaced when the template changes.
func TestPool(t *testing.T) {
	t.Parallel()
	c := Start(t)
	if err := c.InstallDoorstep(t.Context()); err != nil {
		t.Fatal(err)
	}
	name := types.NamespacedName{Namespace: System, Name: v1alpha1.DefaultPoolName}
	p := c.RunPool(t, binary, name)
	m := c.StartManager(t, binary)
	p.WaitReady(t, time.Minute)

	set := &appsv1.StatefulSet{}
	pod := &corev1.Pod{}
	reported := func(ready int32) func() error {
		return func() error {
			key := types.NamespacedName{Namespace: System, Name: v1alpha1.WorkerName(name.Name)}
			if err := c.Client.Get(t.Context(), key, set); err != nil {
				return err
			}
			key.Name = v1alpha1.WorkerPodName(name.Name, 0)
			if err := c.Client.Get(t.Context(), key, pod); err != nil {
				return err
			}
			if set.Status.ReadyReplicas != ready || set.Status.ObservedGeneration != set.Generation ||
				set.Status.CurrentRevision != set.Status.UpdateRevision {
				return fmt.Errorf("the StatefulSet's status is %+v", set.Status)
			}
			return nil
		}
	}
	Eventually(t, time.Minute, "the StatefulSet's status to say that the worker is ready", reported(1))
	claim := &corev1.PersistentVolumeClaim{}
	if err := c.Client.Get(t.Context(), types.NamespacedName{Namespace: System, Name: v1alpha1.QueuePVCName(name.Name, 0)}, claim); err != nil {
		t.Fatal(err)
	}
	if claim.Status.Phase != corev1.ClaimBound || claim.Labels[v1alpha1.LabelPool] != name.Name {
		t.Errorf("the claim is %s with labels %v", claim.Status.Phase, claim.Labels)
	}

	p.Kill(t)
	Eventually(t, time.Minute, "another worker", func() error {
		if p.Starts() != 2 {
			return fmt.Errorf("%d were started", p.Starts())
		}
		return nil
	})
	p.WaitReady(t, time.Minute)
	p.Hold(t)
	Eventually(t, time.Minute, "the StatefulSet's status to say that the worker is gone", reported(0))
	p.Release()
	p.WaitReady(t, time.Minute)

	former := pod.UID
	patch := `{"spec":{"template":{"annotations":{"example.com/rollout":"1"}}}}`
	pool := &v1alpha1.DeliveryPool{}
	pool.Name, pool.Namespace = name.Name, name.Namespace
	if err := c.Client.Patch(t.Context(), pool, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
	Eventually(t, time.Minute, "a Pod of the new template to be ready", func() error {
		if err := reported(1)(); err != nil {
			return err
		}
		if pod.UID == former || pod.Annotations["example.com/rollout"] != "1" {
			return errors.New("the Pod is the former one")
		}
		return nil
	})
	if t.Failed() {
		t.Logf("the manager's log:\n%s", m.Log)
	}
}

// Files of a volume change all at once, and go when their keys do.
func TestProject(t *testing.T) {
	dir := t.TempDir()
	for _, want := range []map[string]string{{"index": "1", "00": "a"}, {"index": "2", "01": "b"}, {}, {"index": "3"}} {
		if err := project(dir, want); err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		hidden := 0
		for _, entry := range entries {
			if strings.HasPrefix(entry.Name(), "..") {
				hidden++
				continue
			}
			b, err := os.ReadFile(filepath.Join(dir, entry.Name()))
			if err != nil {
				t.Fatal(err)
			}
			got[entry.Name()] = string(b)
		}
		if !maps.Equal(got, want) {
			t.Errorf("the files are %v, want %v", got, want)
		}
		if hidden != 2 {
			t.Errorf("%d hidden entries, want the link and what it leads to", hidden)
		}
	}
}
