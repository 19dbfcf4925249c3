package harness

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Namespace is where the manifests of these tests live.
const Namespace = "bench"

// Endpoint is a WebhookEndpoint to write.
type Endpoint struct {
	Name, URL string
	// EventTypes is empty for all types.
	EventTypes []string
	// Customer is the value that the attribute customer must have; empty for any.
	Customer string
	// Timeout and MaxInFlight are left out when unset.
	Timeout     string
	MaxInFlight int
	// RetryPolicy names a RetryPolicy.
	RetryPolicy string
	// Signing is the endpoint's signing as YAML on one line; empty: one Standard Webhooks
	// key, that of SecretManifest.
	Signing string
}

// signingSecret is the Secret whose key "key" signs all deliveries of these tests.
const signingSecret = "signing"

// Manifest is the endpoint as YAML.
func (e Endpoint) Manifest() string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: doorstep.dev/v1alpha1\nkind: WebhookEndpoint\nmetadata: {name: %s, namespace: %s}\nspec:\n  url: %q\n", e.Name, Namespace, e.URL)
	if len(e.EventTypes) > 0 {
		b.WriteString("  eventTypes:\n")
		for _, t := range e.EventTypes {
			fmt.Fprintf(&b, "  - %q\n", t)
		}
	}
	if e.Customer != "" {
		fmt.Fprintf(&b, "  matchAttributes: [{name: customer, value: %q}]\n", e.Customer)
	}
	signing := e.Signing
	if signing == "" {
		signing = fmt.Sprintf("{keys: [{name: test, secretKeyRef: {name: %s, key: key}}]}", signingSecret)
	}
	fmt.Fprintf(&b, "  signing: %s\n", signing)
	if e.Timeout != "" {
		fmt.Fprintf(&b, "  timeout: %s\n", e.Timeout)
	}
	if e.MaxInFlight > 0 {
		fmt.Fprintf(&b, "  maxInFlight: %d\n", e.MaxInFlight)
	}
	if e.RetryPolicy != "" {
		fmt.Fprintf(&b, "  retryPolicyRef: {name: %s}\n", e.RetryPolicy)
	}
	return b.String()
}

// RetryManifest is a RetryPolicy as YAML, with the given delays and no jitter.
func RetryManifest(name string, delays ...string) string {
	return fmt.Sprintf("apiVersion: doorstep.dev/v1alpha1\nkind: RetryPolicy\nmetadata: {name: %s, namespace: %s}\nspec: {backoff: {schedule: [%s]}, jitter: {type: None}}\n",
		name, Namespace, strings.Join(delays, ", "))
}

// PoolManifest is the DeliveryPool of these tests: http to 127.0.0.0/8 is allowed,
// everything else is as it is by default.
const PoolManifest = `apiVersion: doorstep.dev/v1alpha1
kind: DeliveryPool
metadata: {name: default, namespace: doorstep-system}
spec:
  egress: {allowHTTP: true, allow: [{cidr: 127.0.0.0/8}]}
`

// SecretManifest is the Secret with the signing key.
func SecretManifest(key Key) string {
	text := "whsec_" + base64.StdEncoding.EncodeToString(key)
	return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %s, namespace: %s}\nstringData: {key: %q}\n", signingSecret, Namespace, text)
}

// WriteManifest writes documents to a file of dir by rename, so that no reader sees
// half of it.
func WriteManifest(dir, file string, documents ...string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("writing manifests: %w", err)
	}
	tmp := filepath.Join(dir, "."+file+".new")
	if err := os.WriteFile(tmp, []byte(strings.Join(documents, "---\n")), 0o600); err != nil {
		return fmt.Errorf("writing manifests: %w", err)
	}
	if err := os.Rename(tmp, filepath.Join(dir, file)); err != nil {
		return fmt.Errorf("writing manifests: %w", err)
	}
	return nil
}

// perFile is how many endpoints of many share a file.
const perFile = 1000

// WriteManifests writes a whole folder: the pool, the key, and a file an endpoint, or
// for a thousand of them.
func WriteManifests(dir string, key Key, endpoints ...Endpoint) error {
	if err := WriteManifest(dir, "pool.yaml", PoolManifest, SecretManifest(key)); err != nil {
		return err
	}
	size := 1
	if len(endpoints) > perFile {
		size = perFile
	}
	for some := range slices.Chunk(endpoints, size) {
		documents := make([]string, 0, len(some))
		for _, e := range some {
			documents = append(documents, e.Manifest())
		}
		if err := WriteManifest(dir, some[0].Name+".yaml", documents...); err != nil {
			return err
		}
	}
	return nil
}
