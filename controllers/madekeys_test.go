package controllers

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestAKeyThatWasMadeIsNotReadBack(t *testing.T) {
	now := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	name := types.NamespacedName{Namespace: "shop", Name: "orders-signing"}
	secret := func(name, version string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, ResourceVersion: version}, Data: map[string][]byte{"key": []byte("a")}}
	}
	for _, c := range []struct {
		name    string
		do      func(*madeKeys)
		version string
		want    bool
	}{
		{"as it was made", func(m *madeKeys) { m.add(secret("orders-signing", "7"), now) }, "7", true},
		{"changed since", func(m *madeKeys) { m.add(secret("orders-signing", "7"), now) }, "8", false},
		{"never made", func(*madeKeys) {}, "7", false},
		{"taken before", func(m *madeKeys) { m.add(secret("orders-signing", "7"), now); m.take(name, "7") }, "7", false},
		{"another one since", func(m *madeKeys) {
			m.add(secret("orders-signing", "7"), now)
			m.add(secret("other-signing", "8"), now.Add(keepMade-time.Second))
		}, "7", true},
		{"left over", func(m *madeKeys) {
			m.add(secret("orders-signing", "7"), now)
			m.add(secret("other-signing", "8"), now.Add(keepMade))
		}, "7", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var m madeKeys
			c.do(&m)
			if data, ok := m.take(name, c.version); ok != c.want || ok && string(data["key"]) != "a" {
				t.Errorf("gives %v, %v; want %v", data, ok, c.want)
			}
		})
	}
}
