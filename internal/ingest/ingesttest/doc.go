// Package ingesttest holds an in-memory queue and lanes for tests of what stands before the queue: the HTTP API and
// the command tree. They keep the promises of the interfaces that those tests rely on, and can be told to fail. They
// are never part of a build: nothing is durable here.
package ingesttest
