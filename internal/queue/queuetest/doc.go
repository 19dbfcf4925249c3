// Package queuetest is the conformance suite of package queue: what every store must
// do, however it keeps its data. A store's own tests call Run, and add what is
// particular to it: crashes, broken disks, other processes.
//
// The suite promises to fail on a store that breaks a sentence of queue's comments.
// It never looks behind the interface.
package queuetest
