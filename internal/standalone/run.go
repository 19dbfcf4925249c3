package standalone

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"

	"github.com/doorstep-dev/doorstep/internal/engine"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

// queueFolder is the store's place in the data folder.
const queueFolder = "queue"

// process is everything that runs.
type process struct {
	Options
	listener net.Listener
	engine   *engine.Engine
	planner  *planner
	api      *http.Server
}

// Run runs until ctx is done, then stops gracefully: no new events are taken,
// attempts under way finish within the grace or are given back, everything is made
// durable. It returns nil on such a stop.
func Run(ctx context.Context, o Options) error {
	p := &process{Options: o}
	if err := p.check(); err != nil {
		return err
	}
	if err := p.open(ctx); err != nil {
		return errors.Join(err, p.close())
	}
	p.greet()
	err := p.engine.Run(ctx, p.api, p.listener, p.planner.run)
	return errors.Join(err, p.engine.Stop())
}

// open builds everything, in the order in which it depends on each other.
func (p *process) open(ctx context.Context) (err error) {
	if err := makePrivateFolder(p.Data); err != nil {
		return err
	}
	p.engine, err = engine.Open(ctx, engine.Options{
		Dir: filepath.Join(p.Data, queueFolder), Grace: p.Grace, Version: p.Version, Log: p.Log,
	})
	if err != nil {
		return err
	}
	// Only now: who connects is not kept waiting for a store that takes its time.
	if p.listener, err = net.Listen("tcp", p.Listen); err != nil {
		return fmt.Errorf("listen on %s: %w; choose another address with --listen", p.Listen, err)
	}
	if p.planner, err = newPlanner(p); err != nil {
		return err
	}
	first := p.planner.first()
	auth, err := p.authorizer()
	if err != nil {
		return err
	}
	p.api = p.engine.API(auth)
	// The plan last: from here on deliveries are made, and nothing can fail any more.
	p.engine.Use(ctx, first)
	p.planned(first)
	return nil
}

// planned tells how many endpoints there are, once manifests have been read and compiled
// and what that took can be given back.
func (p *process) planned(pl *plan.Plan) {
	if p.Planned != nil {
		p.Planned(len(pl.Endpoints))
	}
}

// close releases what was opened, however far that got.
func (p *process) close() error {
	var errs []error
	if p.engine != nil {
		errs = append(errs, p.engine.Close())
	}
	if p.listener != nil {
		if err := p.listener.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
