// Package planstore keeps a pool's plan in Secrets of the pool's namespace, where the
// manager writes it and workers read it.
//
// The Secret <pool>-plan is the index: the format, the plan's version, the pool's settings
// and a hash of each shard. Up to 64 Secrets <pool>-plan-NN are the shards: the endpoints,
// absences and deletions whose uid (or name, where none is known) falls into it. Each
// holds gzipped JSON under one key. A change of one endpoint rewrites its shard and the
// index.
//
// Shards are written first and the index last, so that an index speaks of shards that
// exist. A reader that meets a shard of another hash waits for the two to agree. What
// stays damaged or missing is left out of the plan: to a worker such endpoints look
// absent, which holds them and deletes nothing, and the writer mends it.
//
// The Secrets hold signing keys: errors never quote what is in them.
package planstore
