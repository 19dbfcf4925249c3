// Package controllers is the control plane: it reconciles WebhookEndpoints, RetryPolicies
// and DeliveryPools with what a cluster holds, and writes each pool's plan.
//
// How a change travels:
//
//  1. A watch brings an object, or what it refers to (references.go says what that is),
//     to the planner of its pool (planner.go).
//  2. The planner looks at everything of the pool (planner_objects.go), compiles the plan
//     and writes it where it changed, at most once a second.
//  3. Endpoints and policies about which the plan says something else than before are
//     reconciled (webhookendpoint_controller.go, retrypolicy_controller.go): their status
//     says what the plan holds and whether workers have it.
//
// Every write is a server-side apply of own entries, and is made only where it changes
// something: a quiet cluster sees none.
//
// Nothing here deletes by absence: an endpoint counts as deleted once a live look has
// answered that it does not exist.
package controllers
