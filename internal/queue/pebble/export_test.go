package pebble

import "time"

// AwaitCompactions waits until pebble has not compacted anything for a second.
func (s *Store) AwaitCompactions() {
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for quiet := 0; quiet < 20; quiet++ {
		if s.db.Metrics().Compact.NumInProgress > 0 {
			quiet = 0
		}
		<-look.C
	}
}
