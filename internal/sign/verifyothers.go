package sign

import (
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"strings"
	"time"
)

// Why a message of GitHub's or Stripe's kind is refused, beside those of Verify.
var (
	ErrNoGitHub = errors.New("X-Hub-Signature-256 is missing, or is not sha256= and hex")
	ErrNoStripe = errors.New("Stripe-Signature is missing, or has not t= and v1=")
)

// VerifyGitHub checks the value of X-Hub-Signature-256 against a body as received. Keys
// are those of ParseKeyFor. GitHub signs no time: a copy of an old message verifies.
func VerifyGitHub(keys []Key, signature string, body []byte) error {
	sent, ok := strings.CutPrefix(signature, "sha256=")
	if !ok {
		return ErrNoGitHub
	}
	return matchHex(keys, []string{sent}, gitHubContent, nil, body)
}

// VerifyStripe checks the value of Stripe-Signature against a body as received: its time
// by the rule of Verify, and any of its v1 signatures by any of the keys. Other versions
// are no signatures: v0 is of test mode, and would be a way around.
func VerifyStripe(keys []Key, signature string, body []byte, now time.Time, tolerance time.Duration) error {
	var ts string
	var sent []string
	for item := range strings.SplitSeq(signature, ",") {
		switch name, value, _ := strings.Cut(item, "="); {
		case name == "t" && ts == "":
			ts = value
		case name == "v1":
			sent = append(sent, value)
		}
	}
	if ts == "" || len(sent) == 0 || len(sent) > maxSignatures {
		return ErrNoStripe
	}
	seconds, err := parseTimestamp(ts)
	if err != nil {
		return err
	}
	if err := checkSkew(seconds, now, tolerance); err != nil {
		return err
	}
	return matchHex(keys, sent, stripeContent, []byte(ts), body)
}

// matchHex is nil if any of the signatures is the HMAC of content by any of the keys.
func matchHex(keys []Key, sent []string, content template, ts, body []byte) error {
	matched := false
	for i := range keys {
		if keys[i].k == nil || keys[i].k.public != nil {
			continue
		}
		want := keys[i].k.appendMAC(nil, content, inHex, "", ts, body)
		for _, s := range sent {
			// Either case of hex is the same signature.
			raw, err := hex.DecodeString(s)
			if err == nil && subtle.ConstantTimeCompare(hex.AppendEncode(nil, raw), want) == 1 {
				matched = true
			}
		}
	}
	if !matched {
		return ErrSignature
	}
	return nil
}
