package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"net/http"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/doorstep-dev/doorstep/client"
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

// api is the API that a command talks to, about one namespace.
type api struct {
	*client.Client
	namespace string
	key       apiKey
	// given are the flags by which another command reaches the same API and namespace.
	given []string
}

// apiKey is a key and where it was looked for.
type apiKey struct {
	text string
	// from names the file or the variable that holds the key; empty without one.
	from string
	// dataDir is a data folder that holds no key.
	dataDir string
}

// api makes the client. A person is told of a failure at once, and decides: nothing is tried again.
func (f *clientFlags) api(s Streams) (*api, error) {
	key, err := f.apiKey(s)
	if err != nil {
		return nil, err
	}
	c, err := client.New(firstSet(f.server, s.Getenv("DOORSTEP_SERVER"), defaultServer), client.Options{
		Key: key.text, UserAgent: "doorstep/" + Version(), Attempts: 1,
	})
	if err != nil {
		return nil, errors.New("the server must be a URL such as " + defaultServer)
	}
	return &api{Client: c, namespace: f.namespace, key: key, given: f.given()}, nil
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
func (c *api) command(words ...string) string {
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

// told puts a failure of the API into the words of the command line, which knows of flags and other commands.
func (c *api) told(err error) error {
	var problem *client.Problem
	var unreachable *client.UnreachableError
	var exit *exitError
	switch {
	case err == nil, errors.As(err, &exit):
		return err
	case errors.As(err, &problem):
		if problem.Status == http.StatusUnauthorized && problem.Kind() != "" {
			return fmt.Errorf("%s (%d)", c.unauthorized(problem), problem.Status)
		}
		return errors.New(printable(err.Error()))
	case errors.As(err, &unreachable) && errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("nothing listens at %s; if Doorstep runs at another address, name it with --server or DOORSTEP_SERVER; "+
			"if it does not run, start it with: doorstep standalone -f DIR", c.Host())
	case errors.Is(err, client.ErrName):
		return fmt.Errorf("%w; doorstep get events or doorstep get endpoints lists them", err)
	}
	return err
}

// unauthorized says in the words of the command line what the API, which knows of headers only, can't.
func (c *api) unauthorized(problem *client.Problem) string {
	const ways = "--data-dir DIR (or DOORSTEP_DATA) of the Doorstep that runs there, " +
		"or --api-key-file FILE (or the key itself in DOORSTEP_API_KEY)"
	switch {
	case problem.Kind() == "key-expired":
		return fmt.Sprintf("the key in %s has expired; give %s", c.key.from, ways)
	case c.key.from != "":
		return fmt.Sprintf("the API at %s does not know the key in %s; give %s", c.Host(), c.key.from, ways)
	case c.key.dataDir != "":
		return fmt.Sprintf("the API at %s wants its key, and the data folder %s holds no api-key; give %s",
			c.Host(), c.key.dataDir, ways)
	}
	return fmt.Sprintf("the API at %s wants its key; give %s", c.Host(), ways)
}

// call runs what a command does with the API, and words its failure.
func (f *clientFlags) call(s Streams, do func(*api) error) error {
	c, err := f.api(s)
	if err != nil {
		return err
	}
	return c.told(do(c))
}

// collect takes the items of a list until its end, or until most (0: all) are there.
func collect[T any](items iter.Seq2[T, error], most int) ([]T, error) {
	all := []T{}
	for item, err := range items {
		if err != nil {
			return nil, err
		}
		if all = append(all, item); len(all) == most {
			break
		}
	}
	return all, nil
}

// pageSize asks for no more than is wanted.
func pageSize(most int) int {
	const largest = 500
	if most == 0 {
		return largest
	}
	return min(most, largest)
}
