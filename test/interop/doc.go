// Package interop holds the test that real deliveries of the real binary are verified
// by other people's code: the npm packages standardwebhooks, svix, stripe and
// @octokit/webhooks-methods, and for other senders' signatures, and asymmetric ones, by a
// second implementation on node's crypto alone. `make interop-deps` installs them.
package interop
