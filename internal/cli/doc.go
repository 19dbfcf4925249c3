// Package cli is the command tree, used as doorstep … and as kubectl doorstep ….
//
// It promises that results go to stdout and everything else to stderr, that an answer of the API is told in its own
// plain sentence, that exit codes mean what the commands' help says (0 done, 1 failed, and for send --wait 2
// dead-lettered and 3 timed out), and that colour is used on a terminal only.
//
// It never prints a key but the one that apikey new makes, and never prints what an event holds without making control
// characters visible.
package cli
