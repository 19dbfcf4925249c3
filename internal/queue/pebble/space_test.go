package pebble

import "testing"

// What is written between two looks at the volume counts: a burst must not fill it.
func TestABurstBetweenTwoLooksStopsAtTheReserve(t *testing.T) {
	free := uint64(20 << 20)
	g := newSpaceGuard(nil, "", &Reserve{Bytes: 10 << 20, Usage: func() (uint64, uint64, error) { return free, 1 << 30, nil }})
	accepted := 0
	for range 1000 {
		if g.check(64<<10) != nil {
			break
		}
		accepted++
		free -= amplification * 64 << 10
	}
	if room := (10 << 20) / (amplification * 64 << 10); accepted < room/2 || accepted > room+1 {
		t.Errorf("%d events of 64 KiB were taken at once with 10 MiB above the reserve, want about %d", accepted, room)
	}
}

func TestTheReserveOfASmallVolume(t *testing.T) {
	for total, want := range map[uint64]uint64{64 << 20: 32 << 20, 400 << 20: 96 << 20, 10 << 30: 1 << 30, 1 << 40: 2 << 30} {
		for free, ok := range map[uint64]bool{want + 1<<20: true, want - 1: false} {
			g := newSpaceGuard(nil, "", &Reserve{Usage: func() (uint64, uint64, error) { return free, total, nil }})
			if err := g.check(0); (err == nil) != ok {
				t.Errorf("%d MiB free of %d MiB: %v, want room: %t", free>>20, total>>20, err, ok)
			}
		}
	}
}
