package kubeauth

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/doorstep-dev/doorstep/internal/ingest"
)

// answer is what was decided.
type answer struct {
	good bool
	// It counts for freshFor, until fresh, without asking again.
	freshFor time.Duration
	fresh    time.Time
	// until is when a good one is forgotten.
	until time.Time
	// Of a good token: whose it is, a key for them, and its own end (zero: none). Of a bad
	// one: why.
	user    *authenticationv1.UserInfo
	userKey string
	expires time.Time
	why     string
}

// ended reports that what was found good has ended by itself.
func (a *answer) ended(now time.Time) bool { return !a.expires.IsZero() && !now.Before(a.expires) }

// memory keeps the answers to one kind of question. Good and bad ones are apart, so that
// strangers push nobody out, however many come.
type memory struct {
	kind      string
	now       func() time.Time
	good, bad *cache.LRUExpireCache
}

func newMemory(kind string, now func() time.Time) *memory {
	return &memory{
		kind: kind, now: now,
		good: cache.NewLRUExpireCacheWithClock(maxKept, clockOf(now)),
		bad:  cache.NewLRUExpireCacheWithClock(maxKept, clockOf(now)),
	}
}

type clockOf func() time.Time

func (c clockOf) Now() time.Time { return c() }

func (m *memory) get(key string) (answer, bool) {
	for _, c := range []*cache.LRUExpireCache{m.good, m.bad} {
		if v, ok := c.Get(key); ok {
			return v.(answer), true
		}
	}
	return answer{}, false
}

func (m *memory) put(key string, a answer) {
	now := m.now()
	a.fresh = now.Add(a.freshFor)
	if a.good {
		a.until = now.Add(lastGoodFor)
		m.good.Add(key, a, lastGoodFor)
		m.bad.Remove(key)
		return
	}
	m.bad.Add(key, a, a.freshFor)
	m.good.Remove(key)
}

// goOn lets a good answer count for a while longer, since no other could be had.
func (m *memory) goOn(key string) {
	v, ok := m.good.Get(key)
	if !ok {
		return
	}
	a, now := v.(answer), m.now()
	a.fresh = now.Add(goOnFor)
	m.good.Add(key, a, a.until.Sub(now))
}

// asker asks the API server, within bounds.
type asker struct {
	now    func() time.Time
	log    logr.Logger
	asking singleflight.Group
	budget *rate.Limiter
	// told keeps the log short while nothing can be asked.
	told rate.Sometimes
}

func newAsker(now func() time.Time, log logr.Logger) *asker {
	return &asker{now: now, log: log, budget: rate.NewLimiter(askRate, askBurst), told: rate.Sometimes{Interval: time.Minute}}
}

// errBusy means that too much is to be asked.
var errBusy = errors.New("more callers that are not known yet than may be asked about at once")

// decide gives a kept answer while it is fresh, else asks; if that can't be done, the last
// good answer. Its error is a 503.
//
// A token that has ended by itself is asked about too, and not just refused: while the API
// server is away nobody gets a new one, and who is refused does not send again.
func (a *asker) decide(ctx context.Context, m *memory, key string, ask func(context.Context) (answer, error)) (answer, error) {
	last, known := m.get(key)
	now := a.now()
	known = known && !last.ended(now)
	if known && now.Before(last.fresh) {
		return last, nil
	}
	got := a.asking.DoChan(m.kind+key, func() (any, error) { return a.ask(ctx, m, key, ask) })
	var slow <-chan time.Time
	if known && last.good {
		t := time.NewTimer(patience)
		defer t.Stop()
		slow = t.C
	}
	var err error
	select {
	case r := <-got:
		if r.Err == nil {
			return r.Val.(answer), nil
		}
		err = r.Err
	case <-slow:
	case <-ctx.Done():
	}
	switch {
	case known && last.good:
		return last, nil
	case errors.Is(err, errBusy):
		return answer{}, ingest.Undecided("Too many callers that are not known here yet come at once. Try again.", tryAfter)
	}
	return answer{}, ingest.Undecided("The API server can't be asked who you are and what you may do. Try again.", tryAfter)
}

// ask asks one question, which is everybody's who waits for its answer: one caller that
// leaves doesn't end it.
func (a *asker) ask(ctx context.Context, m *memory, key string, ask func(context.Context) (answer, error)) (answer, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
	defer cancel()
	got, err := answer{}, errBusy
	if a.budget.AllowN(a.now(), 1) {
		got, err = ask(ctx)
	}
	if err != nil {
		a.told.Do(func() {
			a.log.Info("Callers can't be asked about; those who were let in before are let in for up to an hour, the others are answered 503", "error", err.Error())
		})
		m.goOn(key)
		return answer{}, err
	}
	m.put(key, got)
	return got, nil
}
