// Package sign makes and checks webhook signatures: by the Standard Webhooks
// specification 1.0.0 (HMAC-SHA256, v1, with whsec_ keys and Ed25519, v1a, with whsk_
// keys, over the bytes "{id}.{timestamp}.{body}"), as GitHub and Stripe do, and by any
// HMAC that a plan describes. A Signer is one endpoint's: it holds the keys and when
// each of them signs.
//
// It promises that what it signs is the body's bytes exactly as given, that it
// compares in constant time, that one text is one key (nothing is trimmed, and each
// scheme decodes in one way), that no message goes without a signature because its
// keys have expired, and that no error, log line or printed value of it holds a key. It
// has no clock and no I/O of its own: callers pass the time in.
//
// It never signs an id that is empty or holds a dot: "{id}.{timestamp}.{body}"
// would then read in two ways, and a signature for one message would be valid
// for another.
package sign
