// Package filter decides by a CEL expression whether an endpoint gets an event.
//
// It promises that an expression is either refused when it is compiled, with what is wrong and where, or costs a bounded
// amount of time and memory for every event, however hostile the two are: the language is the part of CEL in which every
// step costs what its operands weigh, each step is charged, and an evaluation that spends more than CostLimit ends with
// an error. The same expression and event always give the same answer; numbers without a fraction compare exactly.
//
// It never changes an event, and no error holds any of its content.
package filter
