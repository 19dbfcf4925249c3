package manifest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/compile"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

// SigningKeyFile is where the generated Secret of an endpoint is kept.
func SigningKeyFile(dataDir, namespace, endpoint string) string {
	return filepath.Join(dataDir, "secrets", namespace, compile.SigningSecretName(endpoint)+".yaml")
}

// EnsureSigningKeys gives the Secrets of the endpoints that leave their key to
// Doorstep and whose Secret is not among in.Secrets. Each is read from the data
// folder, or made there once, as a manifest for its owner alone that is on disk
// before it is returned; a file that exists is never overwritten.
//
// add are all such Secrets, to be compiled with the others; made are those of add
// that are new. No key is made for an endpoint that previous has with a key from a
// Secret of its own: that Secret is lost, not lacking, and a new key would fail at
// the receiver. The error joins those of single endpoints; the others are served
// all the same, and one without a Secret is held by Compile.
func EnsureSigningKeys(dataDir string, in compile.Objects, previous *plan.Plan) (add, made []corev1.Secret, err error) {
	present := make(map[plan.EndpointKey]bool, len(in.Secrets))
	for i := range in.Secrets {
		present[plan.EndpointKey{Namespace: in.Secrets[i].Namespace, Name: in.Secrets[i].Name}] = true
	}
	var former map[plan.EndpointKey]*plan.Endpoint
	if previous != nil {
		former = previous.Index()
	}
	var failed []error
	for i := range in.Endpoints {
		e := &in.Endpoints[i]
		name := compile.SigningSecretName(e.Name)
		if !compile.GeneratesKey(e) || present[plan.EndpointKey{Namespace: e.Namespace, Name: name}] {
			continue
		}
		secret, isNew, err := ensureSigningKey(dataDir, e, compile.HasGeneratedKey(former[plan.EndpointKey{Namespace: e.Namespace, Name: e.Name}]))
		switch {
		case err != nil:
			failed = append(failed, fmt.Errorf("signing key of WebhookEndpoint %s/%s: %w", e.Namespace, e.Name, err))
		case isNew:
			made = append(made, *secret)
			add = append(add, *secret)
		default:
			add = append(add, *secret)
		}
	}
	return add, made, errors.Join(failed...)
}

func ensureSigningKey(dataDir string, e *v1alpha1.WebhookEndpoint, known bool) (secret *corev1.Secret, isNew bool, err error) {
	path := SigningKeyFile(dataDir, e.Namespace, e.Name)
	if secret, err = readSigningKey(path, e); !errors.Is(err, fs.ErrNotExist) {
		return secret, false, err
	}
	name := compile.SigningSecretName(e.Name)
	if known {
		return nil, false, fmt.Errorf("its Secret %s is gone, and receivers know its key, so no other is made; put it back, or write the Secret with a new key", name)
	}
	secret = &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: name},
		Type:       corev1.SecretTypeOpaque,
		StringData: map[string]string{compile.SigningSecretKey: compile.NewSigningKey(e)},
	}
	b, err := yaml.Marshal(secret)
	if err != nil {
		return nil, false, fmt.Errorf("encode the Secret: %w", err)
	}
	if err := MakeFolder(filepath.Dir(path)); err != nil {
		return nil, false, err
	}
	err = CreateFile(path, b)
	if errors.Is(err, fs.ErrExist) { // made by another process since it was looked for
		secret, err = readSigningKey(path, e)
		return secret, false, err
	}
	return secret, err == nil, err
}

// readSigningKey reads a Secret that was generated before. An error holds nothing
// of the file's text.
func readSigningKey(path string, e *v1alpha1.WebhookEndpoint) (*corev1.Secret, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	secret := new(corev1.Secret)
	_, syntax := chunk{text: b, line: 1}.parse() // for its bounds
	if syntax == nil {
		err = yaml.UnmarshalStrict(b, secret)
	}
	if syntax != nil || err != nil || secret.Kind != "Secret" ||
		secret.Namespace != e.Namespace || secret.Name != compile.SigningSecretName(e.Name) {
		return nil, fmt.Errorf("%s is not the manifest of Secret %s/%s; restore it from a backup", path, e.Namespace, compile.SigningSecretName(e.Name))
	}
	return secret, nil
}
