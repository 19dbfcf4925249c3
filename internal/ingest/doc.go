// Package ingest is the HTTP API of a worker: it accepts events, answers questions about them and their deliveries,
// and takes a person's replay or enable.
//
// It promises that a 202 is answered only after the queue holds the event and all its deliveries durably, that every
// error is problem+json (RFC 9457) that says whether a retry makes sense, that bad input is never a 5xx, and that a
// request's body is counted while it streams, so that memory follows the limits and not what a header claims.
//
// It never decides when anything is sent (that is dispatch), never shows an endpoint's URL beyond its host, never
// re-encodes a payload, and is never open by default: without an Authorizer every call under /v1 is refused.
package ingest
