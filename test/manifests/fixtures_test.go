package manifests

import (
	"fmt"
	"strings"
	"testing"

	"github.com/doorstep-dev/doorstep/test/cluster"
)

// What manifests refer to and don't hold.

// tenantFixtures are the Secrets, bundles and policies of a namespace with endpoints.
func (w *world) tenantFixtures(t *testing.T) string {
	certificate, key, err := w.CertificatePEM("erp-client")
	if err != nil {
		t.Fatal(err)
	}
	return `apiVersion: v1
kind: Secret
metadata: {name: orders-signing}
stringData: {key: whsec_oTsZLsC3r621tew5h3R+CNxfgEtDTLStoCLmKnW5A6Q=}
---
apiVersion: v1
kind: Secret
metadata: {name: orders-2026-11}
stringData: {key: whsec_3bNUN0RkK6xuVtQ3yJYkXNGoXH6ZL0wN1cHqJvT0cJc=}
---
apiVersion: v1
kind: Secret
metadata: {name: commands-signing}
stringData: {key: a secret of no service}
---
apiVersion: v1
kind: Secret
metadata: {name: erp}
stringData: {api-key: key-of-the-erp}
---
apiVersion: v1
kind: Secret
metadata: {name: erp-client}
stringData: {clientID: doorstep, clientSecret: secret-of-the-client}
---
apiVersion: v1
kind: Secret
metadata: {name: erp-client-certificate}
type: kubernetes.io/tls
stringData:
  tls.crt: |
` + indent(certificate) + `  tls.key: |
` + indent(key) + `---
` + w.bundle("corp-ca") + `---
apiVersion: doorstep.dev/v1alpha1
kind: RetryPolicy
metadata: {name: patient}
spec: {maxAge: 48h}
`
}

// poolFixtures are those of the pool's namespace.
func (w *world) poolFixtures() string {
	return `apiVersion: v1
kind: Secret
metadata: {name: egress-proxy, namespace: ` + cluster.System + `}
stringData: {username: doorstep, password: password-of-the-proxy}
---
` + strings.Replace(w.bundle("company-ca"), "{name: company-ca}", "{name: company-ca, namespace: "+cluster.System+"}", 1)
}

// egress is what a pool needs to send everything through the proxy of the test, as JSON.
func (w *world) egress() string {
	return fmt.Sprintf(`{"proxy":{"url":%q},"caCertificateRefs":[{"name":"company-ca"}],"allowHTTP":true,"allow":[{"cidr":"127.0.0.0/8"}]}`, w.URL)
}

func (w *world) bundle(name string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\ndata:\n  ca.crt: |\n" + indent(w.PEM)
}

func indent(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ") + "\n"
}
