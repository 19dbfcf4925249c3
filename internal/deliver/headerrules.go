package deliver

import (
	"errors"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// reservedHeaders can't be set by an endpoint: headers of HTTP itself, of what Doorstep
// and its signatures send, and of metadata services, which some of them unlock. With
// Idempotency-Key net/http would send a POST again that the receiver may have got (see
// attempt.getBody). The CRD has the same list.
var (
	reservedHeaders = []string{
		"host", "content-length", "content-type", "content-encoding", "transfer-encoding", "connection", "upgrade", "te",
		"trailer", "expect", "keep-alive", "user-agent", "traceparent", "idempotency-key", "x-idempotency-key", "metadata",
		"metadata-flavor", "stripe-signature", "x-hub-signature", "x-hub-signature-256", "x-github-delivery", "x-github-event",
	}
	reservedPrefixes = []string{"webhook-", "doorstep-", "ce-", "proxy-", "x-google-", "x-aws-ec2-metadata"}
)

const (
	maxHeaderName  = 64
	maxHeaderValue = 4096
)

// CheckHeaderName is nil for the name of a header that an endpoint may set, in any case.
func CheckHeaderName(name string) error {
	lower := canonicalName(name)
	switch {
	case len(name) > maxHeaderName:
		return errors.New("name must be at most 64 characters long")
	case !httpguts.ValidHeaderFieldName(name):
		return errors.New("name must be a header name: letters, digits and dashes, without spaces or colons")
	case slices.Contains(reservedHeaders, lower),
		slices.ContainsFunc(reservedPrefixes, func(p string) bool { return strings.HasPrefix(lower, p) }):
		return errors.New("name is reserved: headers of HTTP itself, of signatures, of events and of metadata services can't be set; choose another name")
	}
	return nil
}

// canonicalName is a header's name as receivers of CGI's kind read it, which take
// Webhook_Id for webhook-id.
func canonicalName(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }

// CheckHeaderValue is nil for a value that can be sent as it is: printable ASCII without
// white space around it, 1 to 4096 characters. The error holds nothing of the value.
func CheckHeaderValue(value string) error {
	switch {
	case value == "":
		return errors.New("is empty")
	case len(value) > maxHeaderValue:
		return errors.New("is longer than 4096 characters")
	case strings.HasSuffix(value, "\n"):
		return errors.New("ends in a newline; write it without one (printf or echo -n)")
	case strings.TrimSpace(value) != value:
		return errors.New("has white space around it; write it without")
	}
	for i := range len(value) {
		if c := value[i]; (c < ' ' && c != '\t') || c > '~' {
			return errors.New("holds line breaks, control characters or characters outside ASCII, which a header can't hold")
		}
	}
	return nil
}
