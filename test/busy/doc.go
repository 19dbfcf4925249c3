// Package busy tests what manager and worker, as processes with the rights of their ServiceAccounts, write to a real API
// server while much happens: how often, with thousands of endpoints under load, and that they keep out of each other's way
// and out of the way of a user who edits the same object all the time.
package busy
