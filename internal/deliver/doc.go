// Package deliver makes one attempt: it signs an event, posts it to an endpoint
// and says what came of it.
//
// It promises that the bytes it posts are the bytes it was given and the bytes it
// signed; that one attempt is one request to the receiver (a request is repeated
// only where HTTP itself guarantees that the receiver did not get it, and once
// where the receiver refuses an OAuth 2.0 token and a fresh one can be had); that
// everything, from resolving the name to the last byte read, ends within the
// attempt's timeout; that no socket is opened to an address that package egress
// denies, but for the pool's proxy; that each attempt is of one version of its
// endpoint and its pool throughout; and that no connection made under one version
// of what is allowed, or of certificates, is used under another.
//
// It never follows a redirect, never takes a proxy from the environment, never
// inflates an answer, never reads more than 64 KiB of one, and never decides
// whether to try again: Result.Class applies a retry policy, dispatch does the
// rest. Messages hold no address, URL, header or body; the beginning of a failed
// answer's body is handed over apart, in Result.Response.
package deliver
