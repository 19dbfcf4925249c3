// Package interop holds the test that real deliveries of the real binary are verified
// by other people's libraries: the npm packages standardwebhooks and svix, and with the
// schemes of those names stripe and GitHub's @octokit/webhooks-methods, in a receiver run
// by node. `make interop-deps` installs them.
package interop
