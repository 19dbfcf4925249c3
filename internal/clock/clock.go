// Package clock gives a time that only moves forward.
//
// Due times, ages and windows are compared in steady time: the wall clock as it
// was at start, or the last time the store had seen if that was later, plus what
// the monotonic clock has measured since. A wall clock that steps, in either
// direction, while the process runs or while it is stopped, neither fires waiting
// deliveries at once nor holds them longer than they were to wait.
//
// Steady time is for intervals. What a receiver or a person sees (the
// webhook-timestamp header, startedAt) comes from Wall.
package clock

import "time"

// Clock is a steady clock beside a wall clock. Safe for concurrent use.
type Clock struct {
	base  time.Time // steady time at start, without a monotonic reading
	start time.Time // holds the monotonic reading
	wall  func() time.Time
}

// New starts a steady clock at the wall clock's time, or at notBefore if that is
// later. wall nil means time.Now.
func New(wall func() time.Time, notBefore time.Time) *Clock {
	if wall == nil {
		wall = time.Now
	}
	// Read first, so that a pause between the two readings leaves steady time ahead of the
	// wall clock, never behind what was stamped by it.
	start := time.Now()
	base := wall().Round(0).UTC()
	if notBefore.After(base) {
		base = notBefore.Round(0).UTC()
	}
	return &Clock{base: base, start: start, wall: wall}
}

// Now is the steady time, in UTC and without a monotonic reading.
func (c *Clock) Now() time.Time { return c.base.Add(time.Since(c.start)) }

// Wall is the wall clock's time in UTC.
func (c *Clock) Wall() time.Time { return c.wall().Round(0).UTC() }
