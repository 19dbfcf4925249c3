package controllers

import (
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// keepMade is how long a key that was made is kept for the pass that puts it into the plan.
const keepMade = time.Minute

// madeKeys are Secrets that were made a moment ago, so that the next pass need not read
// back each of them. The zero value is ready to use.
type madeKeys struct {
	mu   sync.Mutex
	made map[types.NamespacedName]madeKey
}

type madeKey struct {
	version string
	data    map[string][]byte
	at      time.Time
}

// add keeps what a Secret holds as it was made.
func (m *madeKeys) add(s *corev1.Secret, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.made, func(_ types.NamespacedName, k madeKey) bool { return now.Sub(k.at) >= keepMade })
	if m.made == nil {
		m.made = map[types.NamespacedName]madeKey{}
	}
	m.made[client.ObjectKeyFromObject(s)] = madeKey{s.ResourceVersion, s.Data, now}
}

// take gives what a Secret holds, once, if it is still as it was made.
func (m *madeKeys) take(name types.NamespacedName, version string) (map[string][]byte, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k, ok := m.made[name]
	delete(m.made, name)
	return k.data, ok && k.version == version
}
