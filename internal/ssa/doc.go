// Package ssa has what every writer by server-side apply needs: the apply configuration of
// an object of the API, and conditions that change only when they say something else.
//
// It reads and writes nothing, and knows no kind.
package ssa
