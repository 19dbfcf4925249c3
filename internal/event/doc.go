// Package event reads one ingest request into events: plain JSON, and CloudEvents 1.0 in structured, binary and
// batch mode. It finds identity, type, time and attributes, derives the webhook-id, and hashes what came.
//
// It promises that Body is the very bytes that came (a slice of the input, never re-encoded), that bad input is an
// *Error with a status of 400, 413 or 415, a field and a sentence that names the way out, that a batch is taken whole
// or not at all, and that work and memory are linear in the size of the request, however deep its JSON is nested.
//
// It never repairs input: envelope members are matched case-sensitively, a duplicate is refused and not overruled, and
// inside "data" whatever is JSON is kept (duplicate keys, huge numbers, lone surrogates, any depth). It never
// decompresses, never dials, never logs, and no error repeats bytes of the request.
package event
