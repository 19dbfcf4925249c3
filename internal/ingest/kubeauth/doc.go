// Package kubeauth lets callers in by their ServiceAccount tokens: a TokenReview says who
// somebody is, a SubjectAccessReview whether they may do it. Verbs of the API are verbs on
// subresources of webhookendpoints, so that RBAC decides about each of them.
//
// Answers are kept for a short while, equal questions are asked once, and what is asked in
// all is bounded. While the API server is away, or slow, the last good answer serves for up
// to an hour, and what was never answered can't be decided: that is 503, never 401, since a
// producer does not send again what was refused. Tokens are kept as their hashes only.
package kubeauth
