package ingest

import "strings"

// checkNames checks the names of a path; a path without a name has none to check.
func checkNames(namespace, kind, name string) *Problem {
	if !isDNSLabel(namespace) {
		return badRequest("namespace",
			"A namespace is 1 to 63 characters of a-z, 0-9 and -, and neither begins nor ends with -.")
	}
	if name == "" {
		return nil
	}
	switch kind {
	case kindEvents:
		if !isWebhookID(name) {
			return badRequest("webhookId", "A webhook-id is 1 to 64 characters of A-Z, a-z, 0-9, _ and -. "+
				"Another id is looked up by GET …/events?id=…&source=….")
		}
	case kindEndpoints:
		if !isEndpointName(name) {
			return badRequest("endpoint", endpointNameWords)
		}
	}
	return nil
}

// isDNSLabel is RFC 1123's label, as Kubernetes takes it for namespaces.
func isDNSLabel(s string) bool {
	if len(s) == 0 || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

const endpointNameWords = "An endpoint's name is 1 to 63 characters of a-z, 0-9, - and ., as Kubernetes takes it."

// isEndpointName is RFC 1123's subdomain of at most 63 characters, as the CRD takes it.
func isEndpointName(s string) bool {
	if len(s) > 63 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if !isDNSLabel(label) {
			return false
		}
	}
	return true
}

func isWebhookID(s string) bool {
	if len(s) == 0 || len(s) > 64 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return true
}
