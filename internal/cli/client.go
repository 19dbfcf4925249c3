package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/doorstep-dev/doorstep/internal/ingest"
	"github.com/doorstep-dev/doorstep/internal/standalone"
)

const defaultServer = "http://127.0.0.1:8080"

// clientFlags say which API a command talks to, and about which namespace.
type clientFlags struct {
	server, namespace, keyFile, dataDir string
}

func (f *clientFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVarP(&f.namespace, "namespace", "n", "default", "namespace of the events and endpoints")
	fl.StringVar(&f.server, "server", "", "URL of the API (default $DOORSTEP_SERVER, else "+defaultServer+")")
	fl.StringVar(&f.keyFile, "api-key-file", "", "file that holds the API key (default $DOORSTEP_API_KEY)")
	fl.StringVar(&f.dataDir, "data-dir", "", "data folder of a standalone Doorstep, to take its api-key from (default $DOORSTEP_DATA)")
}

// client talks to one API about one namespace.
type client struct {
	base      *url.URL
	namespace string
	key       string
	http      *http.Client
}

func (f *clientFlags) client(s Streams) (*client, error) {
	server := firstSet(f.server, s.Getenv("DOORSTEP_SERVER"), defaultServer)
	base, err := url.Parse(server)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, errors.New("the server must be a URL such as " + defaultServer)
	}
	key, err := f.apiKey(s)
	if err != nil {
		return nil, err
	}
	return &client{
		base: base, namespace: f.namespace, key: key,
		http: &http.Client{
			Timeout: 70 * time.Second,
			// A redirect would carry the key, or the event, to somewhere nobody named.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

func (f *clientFlags) apiKey(s Streams) (string, error) {
	if f.keyFile != "" {
		return readKeyFile(f.keyFile)
	}
	if key := s.Getenv("DOORSTEP_API_KEY"); key != "" {
		return key, nil
	}
	dir := firstSet(f.dataDir, s.Getenv("DOORSTEP_DATA"))
	if dir == "" {
		return "", nil
	}
	key, err := readKeyFile(standalone.APIKeyFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil // a standalone --dev has none
	}
	return key, err
}

func readKeyFile(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the API key: %w", err)
	}
	key := strings.TrimSpace(string(b))
	if _, err := ingest.ParseAPIKey(key); err != nil {
		return "", fmt.Errorf("the API key in %s: %w", path, err)
	}
	return key, nil
}

func firstSet(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// apiError is an answer that is not a success.
type apiError struct {
	problem ingest.Problem
}

// Error is the problem as a sentence.
func (e *apiError) Error() string {
	text := firstSet(e.problem.Detail, e.problem.Title, "the server gave no reason")
	if e.problem.Field != "" {
		text = e.problem.Field + ": " + text
	}
	if e.problem.Status == http.StatusUnauthorized {
		text += " Give the key by $DOORSTEP_API_KEY, --api-key-file, or --data-dir of a standalone Doorstep."
	}
	return fmt.Sprintf("%s (%d)", printable(text), e.problem.Status)
}

// request is one call of the API.
type request struct {
	method string
	path   []string // below /v1/namespaces/{namespace}
	query  url.Values
	header http.Header
	body   []byte
}

// do calls the API and decodes its answer into into.
func (c *client) do(ctx context.Context, r request, into any) error {
	u := c.base.JoinPath(append([]string{"v1", "namespaces", url.PathEscape(c.namespace)}, escaped(r.path)...)...)
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
	req.Header.Set("User-Agent", "doorstep/"+Version())
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return c.unreachable(err)
	}
	defer func() { _ = res.Body.Close() }()
	return decodeAnswer(res, into)
}

func escaped(path []string) []string {
	out := make([]string, len(path))
	for i, p := range path {
		out[i] = url.PathEscape(p)
	}
	return out
}

// maxAnswerBytes bounds what is read of an answer.
const maxAnswerBytes = 64 << 20

func decodeAnswer(res *http.Response, into any) error {
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswerBytes))
	if err != nil {
		return fmt.Errorf("read the server's answer: %w", err)
	}
	if res.StatusCode >= 200 && res.StatusCode < 300 {
		if err := json.Unmarshal(body, into); err != nil {
			return errors.New("the server's answer is not what this version of doorstep understands; is it a Doorstep API?")
		}
		return nil
	}
	var problem ingest.Problem
	if !strings.HasPrefix(res.Header.Get("Content-Type"), "application/problem+json") || json.Unmarshal(body, &problem) != nil {
		return fmt.Errorf("the server answered %s, not as a Doorstep API would", res.Status)
	}
	problem.Status = res.StatusCode
	return &apiError{problem: problem}
}

// unreachable words a failed connection without the request's URL.
func (c *client) unreachable(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("nothing listens at %s; start it with: doorstep standalone --dev -f DIR", c.base.Host)
	}
	return fmt.Errorf("can't reach Doorstep at %s: %w", c.base.Host, err)
}

// pages calls a list again and again until its end or until most items (0: all) are there.
func pages[T any](ctx context.Context, c *client, path []string, query url.Values, most int, items func(T) (n int, cursor string)) error {
	query = cloneValues(query)
	for seen := 0; ; {
		var page T
		limit := 500
		if most > 0 {
			limit = min(limit, most-seen)
		}
		query.Set("limit", fmt.Sprint(limit))
		if err := c.do(ctx, request{method: http.MethodGet, path: path, query: query}, &page); err != nil {
			return err
		}
		n, cursor := items(page)
		seen += n
		if cursor == "" || most > 0 && seen >= most {
			return nil
		}
		query.Set("cursor", cursor)
	}
}

func cloneValues(v url.Values) url.Values {
	out := make(url.Values, len(v)+2)
	for name, values := range v {
		out[name] = values
	}
	return out
}
