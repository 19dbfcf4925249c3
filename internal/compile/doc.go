// Package compile turns Kubernetes objects into the plan that workers work by.
//
// Compile is a pure function of the objects seen, the former plan and the time:
// it has no I/O, no clock and no randomness, so that a cluster's manager (objects
// from informers) and doorstep standalone (objects from files) come to the same
// plan, and so that every rule here can be tested as a table.
//
// It promises that the order of its inputs makes no difference, that compiling
// twice changes nothing, that an object in trouble disturbs no other, and that no
// endpoint is ever taken for deleted because it could not be seen.
//
// It never sends anything unsigned on its way (an endpoint whose keys are not all
// in order is held), and its messages never hold a key, a token or a query string.
package compile
