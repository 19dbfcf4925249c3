package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/doorstep-dev/doorstep/internal/compile"
	"github.com/doorstep-dev/doorstep/internal/manifest"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/sign"
)

// receiveOptions are the flags of receive.
type receiveOptions struct {
	Streams
	listen, secretFile, data string
	scheme                   string
	endpoints                []string
	// missing are the key files that are not there at the start.
	missing           []string
	logFile, failFile string
	failRate          float64
	failStatus        int
	seed              uint64
}

const signingKeyVariable = "DOORSTEP_SIGNING_KEY"

func newReceiveCommand(s Streams) *cobra.Command {
	o := &receiveOptions{Streams: s}
	cmd := &cobra.Command{
		Use:   "receive",
		Short: "Run a sample receiver that verifies, dedupes and prints events",
		Long: "Run a sample receiver: it verifies the signature over the raw bytes, answers an id it has seen before with\n" +
			"success and does nothing, and prints one line for each new event.\n\n" +
			"The key is taken from --secret-file, from $" + signingKeyVariable + ", or from the data folder of a standalone\n" +
			"Doorstep on the same machine (--data DIR --endpoint NAMESPACE/NAME), which may come into being later.\n" +
			"--scheme is that of the endpoint; what scheme HMAC sends can't be verified here.",
		Example: `  doorstep receive --data /var/lib/doorstep --endpoint default/orders
  doorstep receive --secret-file orders-signing.yaml --listen 127.0.0.1:3001`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	fl := cmd.Flags()
	fl.StringVar(&o.listen, "listen", "127.0.0.1:3000", "address to listen on")
	fl.StringVar(&o.scheme, "scheme", plan.SchemeStandardWebhooks, "how events are signed: StandardWebhooks, GitHub or Stripe")
	fl.StringVar(&o.secretFile, "secret-file", "", "file that holds the signing key (whsec_… or whpk_…), one a line, or its Secret's manifest")
	fl.StringVar(&o.data, "data", "", "data folder of a standalone Doorstep that generated the key (default $DOORSTEP_DATA)")
	fl.StringSliceVar(&o.endpoints, "endpoint", nil, "NAMESPACE/NAME of an endpoint whose generated key to use, with --data; may be repeated")
	fl.StringVar(&o.logFile, "log", "", "append each new event to this file as a line of JSON, synced before the answer; it is read at start")
	fl.Float64Var(&o.failRate, "fail-rate", 0, "share of requests to fail, 0 to 1")
	fl.IntVar(&o.failStatus, "fail-status", http.StatusServiceUnavailable, "status code of those failures")
	fl.Uint64Var(&o.seed, "seed", 1, "seed of the choice which requests fail")
	fl.StringVar(&o.failFile, "fail-file", "", "while this file exists, answer everything with the status code in it")
	return cmd
}

func (o *receiveOptions) run(ctx context.Context) error {
	if o.failRate < 0 || o.failRate > 1 || o.failStatus < 300 || o.failStatus > 599 {
		return errors.New("--fail-rate is from 0 to 1, and --fail-status from 300 to 599")
	}
	verify, ok := verifiers[o.scheme]
	if !ok {
		return fmt.Errorf("--scheme %s: it is one of StandardWebhooks, GitHub and Stripe", o.scheme)
	}
	keys, err := o.keys()
	if err != nil {
		return err
	}
	r := &receiver{
		keys: keys, verify: verify, now: o.Now, out: o.Out, seen: make(map[string]bool),
		failRate: o.failRate, failStatus: o.failStatus, failFile: o.failFile, random: rand.New(rand.NewPCG(o.seed, 0)),
	}
	if o.logFile != "" {
		if err := r.openLog(o.logFile); err != nil {
			return err
		}
		defer func() { _ = r.log.Close() }()
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.listen)
	if err != nil {
		var cause *net.OpError
		if errors.As(err, &cause) {
			err = cause.Err // without the address a second time
		}
		return fmt.Errorf("listen on %s: %w; choose another address with --listen", o.listen, err)
	}
	fmt.Fprintf(o.Err, "receiving at http://%s, any path\n", listener.Addr())
	for _, path := range o.missing {
		fmt.Fprintf(o.Err, "waiting for the signing key in %s, which Doorstep makes once it has the endpoint\n", path)
	}
	return serve(ctx, listener, r)
}

// serve serves until ctx is done, and lets open requests end.
func serve(ctx context.Context, listener net.Listener, h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		stopped <- server.Shutdown(grace)
	})
	err := server.Serve(listener)
	if !stop() { // ctx ended it
		return <-stopped
	}
	return err
}

// keySource gives the keys that hold now.
type keySource func() ([]sign.Key, error)

// keys finds out where the key is. A generated key is read when the first event comes: the receiver may be started
// before Doorstep has made it.
func (o *receiveOptions) keys() (keySource, error) {
	switch {
	case o.secretFile != "":
		return fixedKeys(o.readKeys(o.secretFile))
	case o.data != "" || len(o.endpoints) > 0:
		o.data = firstSet(o.data, o.Getenv("DOORSTEP_DATA"))
		return o.generatedKeys()
	case o.Getenv(signingKeyVariable) != "":
		return fixedKeys(o.parseKeys(o.Getenv(signingKeyVariable), "$"+signingKeyVariable))
	}
	return nil, errors.New("give the signing key: --secret-file FILE, $" + signingKeyVariable + ", or --data DIR --endpoint NAMESPACE/NAME")
}

// generatedKeys looks for the keys each time: there are as many as endpoints that Doorstep has seen so far.
func (o *receiveOptions) generatedKeys() (keySource, error) {
	if o.data == "" || len(o.endpoints) == 0 {
		return nil, errors.New("a generated key is found by both --data DIR (or DOORSTEP_DATA) and --endpoint NAMESPACE/NAME")
	}
	var paths []string
	for _, endpoint := range o.endpoints {
		namespace, name, _ := strings.Cut(endpoint, "/")
		if !isName(namespace) || !isName(name) {
			return nil, fmt.Errorf("--endpoint %s: give NAMESPACE/NAME, such as default/orders", endpoint)
		}
		path := manifest.SigningKeyFile(o.data, namespace, name)
		paths = append(paths, path)
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			o.missing = append(o.missing, path)
		}
	}
	return func() ([]sign.Key, error) {
		var all []sign.Key
		var failed error
		for _, path := range paths {
			keys, err := o.readKeys(path)
			all, failed = append(all, keys...), errors.Join(failed, err)
		}
		if len(all) > 0 {
			failed = nil
		}
		return all, failed
	}, nil
}

func isName(s string) bool { return s != "" && s != "." && s != ".." && !strings.ContainsAny(s, `/\`) }

func fixedKeys(keys []sign.Key, err error) (keySource, error) {
	if err != nil {
		return nil, err
	}
	return func() ([]sign.Key, error) { return keys, nil }, nil
}

func (o *receiveOptions) readKeys(path string) ([]sign.Key, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the signing key: %w", err)
	}
	if keys := secretKey(b); keys != "" {
		return o.parseKeys(keys, path)
	}
	return o.parseKeys(string(b), path)
}

// secretKey is the key within a manifest of a Secret, which is how generated keys are kept; empty if b isn't one.
func secretKey(b []byte) string {
	var secret struct {
		Kind       string            `json:"kind"`
		Data       map[string][]byte `json:"data"`
		StringData map[string]string `json:"stringData"`
	}
	if yaml.Unmarshal(b, &secret) != nil || secret.Kind != "Secret" {
		return ""
	}
	return firstSet(secret.StringData[compile.SigningSecretKey], string(secret.Data[compile.SigningSecretKey]))
}

// parseKeys reads one key a line, each by the rule of the scheme.
func (o *receiveOptions) parseKeys(text, from string) ([]sign.Key, error) {
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	if o.scheme == plan.SchemeStandardWebhooks {
		lines = strings.Fields(text) // no such key holds a space
	}
	var keys []sign.Key
	for _, line := range lines {
		key, err := o.parseKey(line)
		if err != nil {
			return nil, fmt.Errorf("the signing key in %s: %w", from, err)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("there is no signing key in %s", from)
	}
	return keys, nil
}

func (o *receiveOptions) parseKey(text string) (sign.Key, error) {
	if o.scheme == plan.SchemeStandardWebhooks {
		return sign.ParseVerifyKey(text) // a public key will do
	}
	return sign.ParseKeyFor(&plan.Signing{Scheme: o.scheme}, text)
}
