package compile

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

// DefaultCACertificateKey is the key of a caCertificateRef that names none.
const DefaultCACertificateKey = "ca.crt"

// maxCACertificateRefs is the most of them in one list, as the CRD has it.
const maxCACertificateRefs = 8

// serverName is the CRD's pattern.
var serverName = regexp.MustCompile(`^[A-Za-z0-9_]([-A-Za-z0-9_.]{0,251}[A-Za-z0-9_])?$`)

// tls resolves what an endpoint wants of https; address is what its URL was resolved to. With --forward-to it has no meaning: it
// belongs to another address.
func (r *resolver) tls(address string) plan.TLS {
	const field = "spec.tls"
	t := r.object.Spec.TLS
	if t == nil || r.opts.ForwardTo != nil {
		return plan.TLS{}
	}
	if scheme, _, _ := strings.Cut(orDefault(r.object.Spec.URL, address), "://"); strings.EqualFold(scheme, "http") {
		r.fault(field, v1alpha1.ReasonSpecInvalid, "tls needs an https url: over http no certificate is asked for or sent; remove tls, or use https")
		return plan.TLS{}
	}
	var out plan.TLS
	out.CACertificates, _ = r.authorities(r.object.Namespace, field+".caCertificateRefs", t.CACertificateRefs, r.fault)
	if ref := t.ClientCertificateRef; ref != nil {
		out.ClientCertificate, out.ClientKey = r.clientCertificate(field+".clientCertificateRef", ref.Name)
	}
	if t.ServerName != "" && !serverName.MatchString(t.ServerName) {
		r.fault(field+".serverName", v1alpha1.ReasonSpecInvalid, "serverName must be a host name, without scheme and port")
	}
	out.ServerName = strings.ToLower(t.ServerName)
	return out
}

// clientCertificate gives the certificate, its chain and its key, in PEM. One that has
// expired is taken: the receiver decides about that, and says so.
func (r *resolver) clientCertificate(field, secret string) (certificate, key string) {
	certificate, ok1 := r.secretText(field, v1alpha1.SecretKeyReference{Name: secret, Key: corev1.TLSCertKey}, "the certificate")
	key, ok2 := r.secretText(field, v1alpha1.SecretKeyReference{Name: secret, Key: corev1.TLSPrivateKeyKey}, "its private key")
	if !ok1 || !ok2 {
		return "", ""
	}
	chain, err := readCertificates(certificate)
	if err != nil {
		r.fault(field, v1alpha1.ReasonCertificateInvalid, "key %s of Secret %s %s", corev1.TLSCertKey, secret, err)
		return "", ""
	}
	if err := checkKeyPair(chain, key); err != nil {
		r.fault(field, v1alpha1.ReasonCertificateInvalid, "key %s of Secret %s %s", corev1.TLSPrivateKeyKey, secret, err)
		return "", ""
	}
	return chain, key
}

// checkKeyPair says what is wrong with the private key of a certificate. The errors of
// crypto/tls may quote what they read, and so are not passed on.
func checkKeyPair(chain, key string) error {
	block, _ := pem.Decode([]byte(key))
	switch {
	case block == nil:
		return errors.New("holds no PEM private key")
	case strings.Contains(key, "ENCRYPTED"):
		return errors.New("is encrypted; store it without a passphrase")
	}
	_, err := tls.X509KeyPair([]byte(chain), []byte(key))
	switch {
	case err == nil:
		return nil
	case strings.Contains(err.Error(), "does not match"):
		return errors.New("does not belong to the certificate in " + corev1.TLSCertKey)
	}
	return errors.New("can't be read as a PEM private key")
}

// faultFunc reports a problem of an object.
type faultFunc func(field, reason, format string, args ...any)

// authorities gives the certificates that a list of references names, in PEM; false, and
// a fault, where one of them can't be had.
func (c *compiler) authorities(namespace, field string, refs []v1alpha1.CACertificateReference, fault faultFunc) (string, bool) {
	if len(refs) > maxCACertificateRefs {
		fault(field, v1alpha1.ReasonSpecInvalid, "caCertificateRefs has %d entries; at most %d are allowed", len(refs), maxCACertificateRefs)
		return "", false
	}
	var all strings.Builder
	ok := true
	for i, ref := range refs {
		field := fmt.Sprintf("%s[%d]", field, i)
		key := cmp.Or(ref.Key, DefaultCACertificateKey)
		kind := cmp.Or(ref.Kind, v1alpha1.CACertificateKindConfigMap)
		text, found := c.authority(namespace, field, kind, ref.Name, key, fault)
		if !found {
			ok = false
			continue
		}
		certificates, err := readCertificates(text)
		if err != nil {
			fault(field, v1alpha1.ReasonCertificateInvalid, "key %s of %s %s %s", key, kind, ref.Name, err)
			ok = false
			continue
		}
		all.WriteString(certificates)
	}
	if !ok {
		return "", false
	}
	return all.String(), true
}

// authority gives the text that one reference names.
func (c *compiler) authority(namespace, field string, kind v1alpha1.CACertificateKind, name, key string, fault faultFunc) (string, bool) {
	id := plan.EndpointKey{Namespace: namespace, Name: name}
	var text string
	var found, has bool
	missing := v1alpha1.ReasonConfigMapNotFound
	switch kind {
	case v1alpha1.CACertificateKindConfigMap:
		if m := c.configMaps[id]; m != nil {
			found = true
			text, has = configMapValue(m, key)
		}
	case v1alpha1.CACertificateKindSecret:
		missing = v1alpha1.ReasonSecretNotFound
		if s := c.secrets[id]; s != nil {
			found = true
			text, has = secretValue(s, key)
		}
	default:
		fault(field+".kind", v1alpha1.ReasonSpecInvalid, "kind must be %s or %s", v1alpha1.CACertificateKindConfigMap, v1alpha1.CACertificateKindSecret)
		return "", false
	}
	switch {
	case !found:
		fault(field, missing, "%s %s does not exist in namespace %s; create it with the certificates under %s", kind, name, namespace, key)
	case !has && kind == v1alpha1.CACertificateKindSecret:
		fault(field, v1alpha1.ReasonSecretKeyMissing, "Secret %s has no key %s; add it with the certificates, or name another key", name, key)
	case !has:
		fault(field, v1alpha1.ReasonCertificateInvalid, "ConfigMap %s has no key %s; add it with the certificates, or name another key", name, key)
	default:
		return text, true
	}
	return "", false
}

func configMapValue(m *corev1.ConfigMap, key string) (string, bool) {
	if v, ok := m.Data[key]; ok {
		return v, true
	}
	v, ok := m.BinaryData[key]
	return string(v), ok
}

// readCertificates checks that a text holds PEM certificates and nothing else that
// counts, and gives them without what stands between. The error follows the name of the
// place the text is from.
func readCertificates(text string) (string, error) {
	var out strings.Builder
	n := 0
	for rest := []byte(text); ; {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil {
			break
		}
		n++
		if block.Type != "CERTIFICATE" {
			return "", errors.New("must hold certificates only, and PEM block " + fmt.Sprint(n) + " is something else")
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return "", errors.New("holds a certificate that can't be read: PEM block " + fmt.Sprint(n))
		}
		block.Headers = nil
		if err := pem.Encode(&out, block); err != nil {
			return "", errors.New("holds a certificate that can't be read: PEM block " + fmt.Sprint(n))
		}
	}
	switch {
	case n == 0:
		return "", errors.New("holds no PEM certificate")
	case n != strings.Count(text, "-----BEGIN "):
		return "", errors.New("holds a PEM block that can't be read") // which the decoder passes over
	}
	return out.String(), nil
}
