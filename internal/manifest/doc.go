// Package manifest reads Doorstep's objects from files, for doorstep standalone.
//
// It reads one file or a folder tree of *.yaml, *.yml and *.json, holds each
// object to the very schemas a cluster would hold it to (the generated CRDs, CEL
// rules included, by the Kubernetes libraries), and reports everything wrong as
// file:line: kind namespace/name: field: message, while the good objects go on.
//
// It promises what an API server would: an edit that is refused leaves the former
// version in force. This holds within the life of a Loader, for single objects and
// for whole files that stop parsing. And it promises never to take "could not be
// read" for "was deleted": a Snapshot says whether the look was complete.
//
// Beside that it keeps the two things that standalone writes: the plan in force,
// and the signing keys it generates.
//
// It never quotes a value from a manifest in a problem, except numbers and names,
// since values hold keys and tokens. Of a Secret it says the fields of the API and
// the object's name only, since a slip of the keyboard makes a key of a value. No
// text of a YAML parser is passed on.
//
// What a file can cost is bounded: its size, its documents, the values that its
// aliases expand to, and what is said of it.
package manifest
