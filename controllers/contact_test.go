package controllers

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestTheClockStandsStillWhileTheAPIServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := false
		live := interceptor.NewClient(fake.NewClientBuilder().WithScheme(Scheme()).Build(), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if away {
					return errors.New("connection refused")
				}
				return c.Get(ctx, k, o, opts...) // which finds nothing, and so answers
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		c := newContact(live, "doorstep-system")
		ended := make(chan error, 1)
		go func() { ended <- c.Start(ctx) }()
		during := func(d time.Duration) time.Duration {
			before := c.Now()
			time.Sleep(d) // virtual
			synctest.Wait()
			return c.Now().Sub(before)
		}
		if d := during(10 * time.Minute); d < 9*time.Minute || d > 10*time.Minute {
			t.Errorf("%v in ten minutes", d)
		}
		away = true
		if d := during(10 * time.Minute); d > 10*time.Second {
			t.Errorf("%v in ten minutes without the API server", d)
		}
		away = false
		if d := during(time.Minute); d < 50*time.Second || d > time.Minute+askInterval+askTimeout {
			t.Errorf("%v in the minute after", d)
		}
		cancel()
		<-ended
	})
}
