package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// Options are the settings of a Client. The zero value calls without a key.
type Options struct {
	// Key is the API key, dsk_<id>_<random>; empty for none.
	Key string
	// KeyFunc, when set, gives the key of each request instead, for keys that change. An error ends the call.
	KeyFunc func(context.Context) (string, error)
	// HTTPClient makes the requests; nil: one with a timeout of 75 s. It is copied, and follows no redirect whatever
	// its CheckRedirect says.
	HTTPClient *http.Client
	// UserAgent is sent with each request; empty: "doorstep-client".
	UserAgent string
	// Attempts is how often a call that is safe to repeat is made at most; 0: 10, which takes about 80 s; 1: once.
	Attempts int
}

const (
	defaultTimeout  = 75 * time.Second // longer than the API takes for any answer
	defaultAttempts = 10
	// maxAnswerBytes bounds what is read of an answer.
	maxAnswerBytes = 64 << 20
)

// Client calls one API. It is safe for concurrent use.
type Client struct {
	base     *url.URL
	http     http.Client
	key      func(context.Context) (string, error)
	agent    string
	attempts int
}

// New makes a Client of the API at a URL: http or https, a host, and perhaps a path that the API lies below.
func New(baseURL string, o Options) (*Client, error) {
	base, err := url.Parse(baseURL)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" ||
		base.User != nil || base.RawQuery != "" || base.Fragment != "" {
		return nil, errors.New("the API's address must be a URL such as http://127.0.0.1:8080")
	}
	c := &Client{base: base, key: o.KeyFunc, agent: o.UserAgent, attempts: o.Attempts}
	if o.HTTPClient != nil {
		c.http = *o.HTTPClient
	} else {
		c.http.Timeout = defaultTimeout
	}
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if c.key == nil {
		c.key = func(context.Context) (string, error) { return o.Key, nil }
	}
	if c.agent == "" {
		c.agent = "doorstep-client"
	}
	if c.attempts <= 0 {
		c.attempts = defaultAttempts
	}
	return c, nil
}

// Host is the host and port of the API.
func (c *Client) Host() string { return c.base.Host }

// request is one call of the API.
type request struct {
	method    string
	namespace string
	path      []string // below /v1/namespaces/{namespace}
	query     url.Values
	header    http.Header
	body      []byte
	// once: the call is not safe to repeat.
	once bool
}

// ErrName is the error of a call whose namespace, webhook-id or endpoint can't be part of a path.
var ErrName = errors.New("that is not a name")

// ErrForeign is the error of a call that was answered as no Doorstep API does.
var ErrForeign = errors.New("the answer is not what this version understands; is it a Doorstep API?")

// do calls the API, again where that can help, and decodes its answer into into.
func (c *Client) do(ctx context.Context, r request, into any) error {
	for _, name := range append([]string{r.namespace}, r.path...) {
		if name == "" || name == "." || name == ".." {
			return fmt.Errorf("%q: %w", name, ErrName)
		}
	}
	attempts := c.attempts
	if r.once {
		attempts = 1
	}
	for n := 1; ; n++ {
		err := c.try(ctx, r, into)
		wait, again := pause(err, n)
		if err == nil || !again || n >= attempts || ctx.Err() != nil || !fits(ctx, wait) {
			return err
		}
		if stopped := sleep(ctx, wait); stopped != nil {
			return fmt.Errorf("%w; the last answer: %w", stopped, err)
		}
	}
}

// try makes one request.
func (c *Client) try(ctx context.Context, r request, into any) error {
	parts := []string{"v1", "namespaces", url.PathEscape(r.namespace)}
	for _, p := range r.path {
		parts = append(parts, url.PathEscape(p))
	}
	u := c.base.JoinPath(parts...)
	u.RawQuery = r.query.Encode()
	req, err := http.NewRequestWithContext(ctx, r.method, u.String(), bytes.NewReader(r.body))
	if err != nil {
		return err
	}
	for name, values := range r.header {
		req.Header[name] = values
	}
	if r.method == http.MethodPost && r.header == nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("User-Agent", c.agent)
	key, err := c.key(ctx)
	if err != nil {
		return fmt.Errorf("get the API key: %w", err)
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return c.unreachable(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswerBytes))
	if err != nil {
		return c.unreachable(err)
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return problemOf(res, body)
	}
	return decode(body, into)
}

// decode reads a success. Any server may say 200 {}, and that is no receipt.
func decode(body []byte, into any) error {
	if raw, ok := into.(*[]byte); ok {
		*raw = body
		return nil
	}
	if json.Unmarshal(body, into) != nil {
		return ErrForeign
	}
	if a, ok := into.(interface{ whole() bool }); ok && !a.whole() {
		return ErrForeign
	}
	return nil
}

// UnreachableError is a call without an answer, or with one that broke off. What was asked for may have been done.
type UnreachableError struct {
	// Host is the host and port of the API.
	Host string
	// Err is why, without the URL.
	Err error
}

// Error names the host and the reason.
func (e *UnreachableError) Error() string {
	return "can't reach Doorstep at " + e.Host + ": " + e.Err.Error()
}

// Unwrap is the reason.
func (e *UnreachableError) Unwrap() error { return e.Err }

func (c *Client) unreachable(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	return &UnreachableError{Host: c.base.Host, Err: err}
}
