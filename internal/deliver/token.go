package deliver

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
	"golang.org/x/sync/singleflight"

	"github.com/doorstep-dev/doorstep/internal/deliver/egress"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

const (
	// tokenTimeout bounds one request for a token. Attempts wait for it as long as their own
	// timeout lets them.
	tokenTimeout = 15 * time.Second
	// A token is fetched anew so long before it expires, or a tenth of its life if that is
	// less.
	tokenEarly = time.Minute
	// renewEvery is the least time between two tokens that are fetched because the receiver
	// refused the one before: a receiver that refuses all must not become a flood at the
	// authorization server. Nor must a failing authorization server see more than one
	// request in failureLife.
	renewEvery  = time.Minute
	failureLife = time.Second
	// refreshRetry is when a refresh that failed is tried again, while the old token holds.
	refreshRetry = 10 * time.Second
	// maxTokenAnswer bounds an answer of the authorization server, maxToken the token in it.
	maxTokenAnswer = 64 << 10
	maxToken       = 16 << 10
	// sourceLife is how long a token that no attempt uses is kept.
	sourceLife = time.Hour
)

// oauth2Client is a client of an authorization server, as one namespace has it.
type oauth2Client struct {
	key tokenKey
	url *url.URL
	// way is how the last request for a token went.
	way    atomic.Pointer[route]
	config clientcredentials.Config
}

// tokenKey tells tokens apart: who asks, and for what.
type tokenKey struct {
	namespace, tokenURL, id, secret, scopes, audience string
	inBody                                            bool
}

func newOAuth2Client(namespace string, o *plan.OAuth2) (*oauth2Client, error) {
	u, err := egress.CheckURL(o.TokenURL)
	if err != nil {
		return nil, err
	}
	c := &oauth2Client{url: u, config: clientcredentials.Config{
		ClientID: o.ClientID, ClientSecret: o.ClientSecret, TokenURL: u.String(), Scopes: o.Scopes,
		AuthStyle: oauth2.AuthStyleInHeader,
	}}
	c.key = tokenKey{namespace: namespace, tokenURL: c.config.TokenURL, id: o.ClientID, secret: o.ClientSecret, audience: o.Audience, inBody: o.InBody}
	for _, s := range o.Scopes {
		c.key.scopes += s + " "
	}
	if o.InBody {
		c.config.AuthStyle = oauth2.AuthStyleInParams
	}
	if o.Audience != "" {
		c.config.EndpointParams = url.Values{"audience": {o.Audience}}
	}
	return c, nil
}

// tokens are the token sources of a Client. They survive plans that don't change them.
type tokens struct {
	mu      sync.Mutex
	sources map[tokenKey]*tokenSource
	fetches sync.WaitGroup
}

// source gives a destination's source.
func (t *tokens) source(d *Destination) *tokenSource {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sources[d.oauth2.key]
	if s == nil {
		if t.sources == nil {
			t.sources = map[tokenKey]*tokenSource{}
		}
		s = &tokenSource{client: d.oauth2}
		t.sources[d.oauth2.key] = s
	}
	s.used = time.Now()
	return s
}

// sweep forgets the tokens that no attempt has used for sourceLife.
func (t *tokens) sweep() {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	for k, s := range t.sources {
		if now.Sub(s.used) > sourceLife {
			delete(t.sources, k)
		}
	}
}

// wait waits for the requests under way.
func (t *tokens) wait() { t.fetches.Wait() }

// tokenSource holds the token of one client, and fetches another when it is time.
type tokenSource struct {
	client *oauth2Client
	used   time.Time // guarded by tokens.mu
	flight singleflight.Group

	mu sync.Mutex
	// outcomes counts the requests that were made. failure is that of the last one.
	outcomes int
	failure  error
	failedAt time.Time
	current  string
	// expires is zero for a token that doesn't say; refreshAt is when to fetch the next one,
	// zero while that is under way.
	expires, refreshAt time.Time
	renewed            time.Time // when a token was last fetched because of a 401
}

// token gives a token to send. A *tokenError says why none can be had; any other error
// is that of ctx.
func (s *tokenSource) token(ctx context.Context, c *Client, n *network) (string, error) {
	now := time.Now()
	s.mu.Lock()
	seen, current := s.outcomes, s.current
	valid := current != "" && (s.expires.IsZero() || now.Before(s.expires))
	refresh := valid && !s.refreshAt.IsZero() && !now.Before(s.refreshAt)
	if refresh {
		s.refreshAt = time.Time{}
	}
	var failure error
	if now.Sub(s.failedAt) < failureLife {
		failure = s.failure
	}
	s.mu.Unlock()
	switch {
	case refresh:
		_ = s.start(c, n, seen) // this attempt and the others go on with the old one
		return current, nil
	case valid:
		return current, nil
	case failure != nil:
		return "", failure
	}
	return s.fetch(ctx, c, n, seen)
}

// renew gives a token in the place of one that the receiver refused: the one that is
// there meanwhile, or a fresh one, or the refused one itself where that was fetched only
// lately, and so another one would not help.
func (s *tokenSource) renew(ctx context.Context, c *Client, n *network, refused string) (string, error) {
	now := time.Now()
	s.mu.Lock()
	seen, current := s.outcomes, s.current
	lately := !s.renewed.IsZero() && now.Sub(s.renewed) < renewEvery
	if current == refused && !lately {
		s.current, s.renewed = "", now
	}
	s.mu.Unlock()
	switch {
	case current != "" && current != refused:
		return current, nil
	case current == refused && lately:
		return refused, nil
	}
	return s.fetch(ctx, c, n, seen)
}

// fetch waits for a token newer than the outcomes that were seen, as long as ctx lets it.
func (s *tokenSource) fetch(ctx context.Context, c *Client, n *network, seen int) (string, error) {
	select {
	case r := <-s.start(c, n, seen):
		return r.token, r.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// fetched is what came of a request for a token.
type fetched struct {
	token string
	err   error
}

// start asks the authorization server, once for all who wait, and not at all if another
// outcome is there since seen. It goes on when those who wait have given up.
func (s *tokenSource) start(c *Client, n *network, seen int) <-chan fetched {
	done := make(chan fetched, 1)
	c.tokens.fetches.Go(func() {
		token, err, _ := s.flight.Do("", func() (any, error) {
			s.mu.Lock()
			current, failure, newer := s.current, s.failure, s.outcomes != seen
			s.mu.Unlock()
			if newer && (failure != nil || current != "") {
				return current, failure
			}
			ctx, cancel := context.WithTimeout(c.lifetime, tokenTimeout)
			defer cancel()
			t, err := s.ask(ctx, c.userAgent, n)
			s.store(t, err)
			if err != nil {
				return "", err
			}
			return t.AccessToken, nil
		})
		done <- fetched{token.(string), err}
	})
	return done
}

// store keeps what came of a request for a token.
func (s *tokenSource) store(t *oauth2.Token, err error) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outcomes++
	s.failure, s.failedAt = err, now
	if err != nil {
		s.refreshAt = now.Add(refreshRetry) // the old one is used while it holds
		return
	}
	s.current, s.expires, s.refreshAt = t.AccessToken, t.Expiry, time.Time{}
	if !t.Expiry.IsZero() {
		s.refreshAt = t.Expiry.Add(-min(tokenEarly, t.Expiry.Sub(now)/10))
	}
}

// ask makes one request for a token, by the same ways and under the same guard as every
// other.
func (s *tokenSource) ask(ctx context.Context, userAgent string, n *network) (*oauth2.Token, error) {
	way := n.route(s.client.key.namespace, s.client.url, nil, nil, &s.client.way)
	defer way.release()
	if way.denied != nil {
		return nil, &tokenError{"the address of the token server is not allowed"}
	}
	trip := &tokenTrip{way: way, userAgent: userAgent}
	client := &http.Client{
		Transport:     trip,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	t, err := s.client.config.Token(context.WithValue(ctx, oauth2.HTTPClient, client))
	switch {
	case trip.err != nil:
		return nil, unreachable(ctx, trip.err, s.client.url.Scheme == "https")
	case err != nil:
		return nil, refusal(err)
	}
	return t, checkToken(t)
}

// tokenTrip carries a request for a token. The error of the connection is kept apart,
// for oauth2 wraps it with the URL.
type tokenTrip struct {
	way       *route
	userAgent string
	err       error
}

// RoundTrip makes the request and bounds its answer.
func (t *tokenTrip) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("User-Agent", t.userAgent)
	resp, err := t.way.transport.RoundTrip(r)
	if err != nil {
		t.err = err
		return nil, err
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(resp.Body, maxTokenAnswer), resp.Body}
	return resp, nil
}

// checkToken takes what can be sent as a bearer token.
func checkToken(t *oauth2.Token) error {
	if t.Type() != "Bearer" {
		return &tokenError{"the token server gives tokens of a type other than bearer"}
	}
	if len(t.AccessToken) > maxToken || !printable(t.AccessToken) {
		return &tokenError{"the token server gives a token that can't be sent in a header"}
	}
	return nil
}

// printable reports whether a text is ASCII without spaces and control characters.
func printable(text string) bool {
	for i := range len(text) {
		if text[i] <= ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}
