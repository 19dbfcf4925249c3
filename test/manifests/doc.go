// Package manifests applies every manifest of the samples and of the documentation to a real API server, exactly as it is
// written, and sees that it works: each object becomes Ready, and an event posted with a ServiceAccount's token reaches the
// receivers that it names, through a manager and a worker that are real processes.
//
// No endpoint's manifest is rewritten to reach this machine. The pool sends all requests through a forward proxy of the
// test, which answers for every host itself, with certificates of an authority that the pool trusts. What the manifests
// refer to and don't hold, Secrets and bundles, is in fixtures_test.go.
package manifests
