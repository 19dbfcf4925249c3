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
	fl.StringVar(&f.keyFile, "api-key-file", "", "file that holds the API key; without it, $DOORSTEP_API_KEY may hold the key itself")
	fl.StringVar(&f.dataDir, "data-dir", "", "data folder of a standalone Doorstep, to take its api-key from (default $DOORSTEP_DATA)")
}

// client talks to one API about one namespace.
type client struct {
	base      *url.URL
	namespace string
	key       apiKey
	// given are the flags by which another command reaches the same API and namespace.
	given []string
	http  *http.Client
}

// apiKey is a key and where it was looked for.
type apiKey struct {
	text string
	// from names the file or the variable that holds the key; empty without one.
	from string
	// dataDir is a data folder that holds no key.
	dataDir string
}

func (f *clientFlags) client(s Streams) (*client, error) {
	server := firstSet(f.server, s.Getenv("DOORSTEP_SERVER"), defaultServer)
	base, err := url.Parse(server)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" || base.RawQuery != "" || base.Fragment != "" {
		return nil, errors.New("the server must be a URL such as " + defaultServer)
	}
	key, err := f.apiKey(s)
	if err != nil {
		return nil, err
	}
	return &client{
		base: base, namespace: f.namespace, key: key, given: f.given(),
		http: &http.Client{
			Timeout: 70 * time.Second,
			// A redirect would carry the key, or the event, to somewhere nobody named.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

func (f *clientFlags) apiKey(s Streams) (apiKey, error) {
	if f.keyFile != "" {
		return readKeyFile(f.keyFile)
	}
	if key := s.Getenv("DOORSTEP_API_KEY"); key != "" {
		return apiKey{text: key, from: "$DOORSTEP_API_KEY"}, nil
	}
	dir := firstSet(f.dataDir, s.Getenv("DOORSTEP_DATA"))
	if dir == "" {
		return apiKey{}, nil
	}
	key, err := readKeyFile(standalone.APIKeyFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return apiKey{dataDir: dir}, nil // a standalone --dev has none
	}
	return key, err
}

func readKeyFile(path string) (apiKey, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return apiKey{}, fmt.Errorf("read the API key: %w", err)
	}
	key := strings.TrimSpace(string(b))
	if _, err := ingest.ParseAPIKey(key); err != nil {
		return apiKey{}, fmt.Errorf("the API key in %s: %w", path, err)
	}
	return apiKey{text: key, from: path}, nil
}

// given are the flags that a person gave, but for the namespace where it is the default one.
func (f *clientFlags) given() []string {
	var words []string
	for _, flag := range []struct{ name, value, unless string }{
		{"-n", f.namespace, "default"}, {"--server", f.server, ""},
		{"--api-key-file", f.keyFile, ""}, {"--data-dir", f.dataDir, ""},
	} {
		if flag.value != flag.unless {
			words = append(words, flag.name, flag.value)
		}
	}
	return words
}

// command is a command line for a person to copy, with the flags that lead it to where c leads.
func (c *client) command(words ...string) string {
	line := "doorstep"
	for _, word := range append(words, c.given...) {
		line += " " + shellWord(word)
	}
	return line
}

// shellWord quotes a word where a shell would read it as something else.
func shellWord(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@%+=,", r)
	}
	if word != "" && strings.TrimFunc(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
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
	for _, p := range r.path {
		if p == "" || p == "." || p == ".." {
			return fmt.Errorf("%q is not a name; doorstep get events or doorstep get endpoints lists them", p)
		}
	}
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
	if c.key.text != "" {
		req.Header.Set("Authorization", "Bearer "+c.key.text)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return c.unreachable(err)
	}
	defer func() { _ = res.Body.Close() }()
	err = decodeAnswer(res, into)
	var answer *apiError
	if errors.As(err, &answer) && answer.problem.Status == http.StatusUnauthorized {
		answer.problem.Field, answer.problem.Detail = "", c.unauthorized()
	}
	return err
}

// unauthorized says in the words of the command line what the API, which knows of headers only, can't.
func (c *client) unauthorized() string {
	const ways = "--data-dir DIR (or DOORSTEP_DATA) of the Doorstep that runs there, " +
		"or --api-key-file FILE (or the key itself in DOORSTEP_API_KEY)"
	switch {
	case c.key.from != "":
		return fmt.Sprintf("the API at %s does not know the key in %s; give %s", c.base.Host, c.key.from, ways)
	case c.key.dataDir != "":
		return fmt.Sprintf("the API at %s wants its key, and the data folder %s holds no api-key; give %s",
			c.base.Host, c.key.dataDir, ways)
	}
	return fmt.Sprintf("the API at %s wants its key; give %s", c.base.Host, ways)
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
		if json.Unmarshal(body, into) != nil || !whole(into) {
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

// whole reports whether an answer has what every answer of its kind has: any server may
// say 200 {}, and that is no receipt.
func whole(answer any) bool {
	switch a := answer.(type) {
	case *ingest.Receipt:
		return a.WebhookID != ""
	case *ingest.Event:
		return a.WebhookID != ""
	case *ingest.ReplayResult:
		return a.WebhookID != ""
	case *ingest.Endpoint:
		return a.Name != ""
	case *ingest.EnableResult:
		return a.Endpoint != ""
	case *ingest.EventList:
		return a.Items != nil
	case *ingest.EndpointList:
		return a.Items != nil
	case *ingest.DeliveryList:
		return a.Items != nil
	}
	return true
}

// unreachable words a failed connection without the request's URL.
func (c *client) unreachable(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("nothing listens at %s; if Doorstep runs at another address, name it with --server or DOORSTEP_SERVER; "+
			"if it does not run, start it with: doorstep standalone -f DIR", c.base.Host)
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
		if cursor == query.Get("cursor") {
			return errors.New("the server gives the same page again and again; is it a Doorstep API?")
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
