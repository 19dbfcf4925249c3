// Package pebble is the embedded store: a queue.Queue in one folder, on one disk,
// for one process.
//
// # How a change becomes durable
//
// Every change is an op. Ops go through one pipeline of two goroutines:
//
//		callers ──ops──► writer ──commits──► syncer ──► replies, Listener, Record's done
//
//	 1. The writer takes all ops that wait (up to a bound), and lets each one read
//	    what it needs and add its writes to one batch. Ops run one after another, so a
//	    check and the write that depends on it need no lock: this is what makes
//	    identities unique and transitions single. What an op has written in the same
//	    batch is seen by later ones through the batch's overlay. An op reads first and
//	    writes after, so that one that fails leaves nothing in the batch.
//	 2. The batch is applied without waiting for the disk; if it holds anything a
//	    caller waits for, a sync is requested with it (group commit: one fsync for
//	    all). Every batch carries the time and the last sequence number.
//	 3. The syncer waits for that fsync and only then tells the Listener and answers
//	    the callers, in order. Meanwhile the writer fills the next batch.
//
// Outcomes of attempts ask for no fsync of their own: they share the next one, and
// at most syncInterval later one is made for them. A crash of the machine may
// therefore repeat attempts of the last syncInterval; a crash of the process those
// that the writer had not taken yet. Neither loses an event.
//
// The writer waits for the syncer (one commit may lie between them), and the syncer
// for the Listener and the done functions: see queue.Queue for what these must not do.
//
// The first write that fails ends all writing: what is in memory may then differ from
// what is on disk, and only a restart puts that right.
//
// # Keys
//
// One letter for the kind of record, then big-endian numbers, so that records lie
// in the order in which they are read (keys.go). A delivery's state is where its
// record lies: fresh, retrying (with an entry in the due index), delivered or
// dead-lettered, discarded, or ended by a filter's error. A fresh record is written once and removed once in its life, never
// written again: that is what pebble's SingleDelete asks for, and why a replayed
// delivery goes to the retrying ones.
//
// Names of namespaces and endpoints lead to numbers, and all else goes by these. That is how
// a namespace that was made anew inherits nothing: its name leads to other numbers
// (naming.go).
//
// # Forgetting
//
// Prune reads beside the writer and removes in short ops what has not changed since
// (prune.go, look.go, forget.go); segments.go says how it knows where to look. Removed
// records keep their place until their files are compacted (reclaim.go). What can't be read
// is passed over (damage.go).
//
// The folder holds FORMAT (the version of all this; an unknown or newer one is
// refused and left untouched), LOCK, OWNER (who holds it) and db (pebble's files).
package pebble
