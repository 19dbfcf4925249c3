package cli

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/doorstep-dev/doorstep/internal/compile"
	"github.com/doorstep-dev/doorstep/internal/ingest"
	"github.com/doorstep-dev/doorstep/internal/manifest"
)

// apiKeyOptions are the flags of apikey new.
type apiKeyOptions struct {
	Streams
	id                           string
	namespaces, verbs, endpoints []string
	expires, keyFile             string
}

func newAPIKeyCommand(s Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "apikey new --id ID",
		Short:   "Make an API key for a caller outside the cluster",
		Example: "  doorstep apikey new --id shop --namespace shop --verb send",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("say what to do: apikey new --id ID")
		},
	}
	cmd.AddCommand(newAPIKeyNewCommand(s))
	return cmd
}

func newAPIKeyNewCommand(s Streams) *cobra.Command {
	o := &apiKeyOptions{Streams: s}
	cmd := &cobra.Command{
		Use:   "new --id ID",
		Short: "Make an API key and its entry of the DeliveryPool's Secret",
		Long: "Make an API key. To standard output goes its entry of the Secret that spec.ingest.apiKeysSecretRef of the\n" +
			"DeliveryPool names, to stand below stringData; it holds the key's SHA-256 and may be committed. The key itself\n" +
			"is shown this once on standard error, or written to --key-file. No Doorstep is called.\n\n" +
			"Verbs: send (post events), read (events, deliveries, endpoints), payload (the bytes of events), replay,\n" +
			"manage (test, retry, enable endpoints), erase (payloads), audit (read the audit records), or \"*\" for all.\n" +
			"A key with --endpoint may have read, payload, replay and manage, of these endpoints only.",
		Example: `  doorstep apikey new --id shop --namespace shop --verb send --expires 90d
  doorstep apikey new --id support --namespace '*' --verb read --verb replay --key-file support.key >> api-keys.yaml
  doorstep apikey new --id partner --namespace shop --endpoint partner --verb '*'`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return o.run() },
	}
	fl := cmd.Flags()
	fl.StringVar(&o.id, "id", "", "the key's id, a-z and 0-9: it names the entry, and the caller in audit records")
	fl.StringSliceVarP(&o.namespaces, "namespace", "n", []string{"default"}, `a namespace that the key is good for, or "*" for all; may be repeated`)
	fl.StringSliceVar(&o.verbs, "verb", nil, "what the key may do; may be repeated (default send, with --endpoint read)")
	fl.StringSliceVar(&o.endpoints, "endpoint", nil, "the only endpoint that the key may see and act on; may be repeated")
	fl.StringVar(&o.expires, "expires", "", "when the key ends: a time such as 2027-01-31T00:00:00Z, or from now on, such as 90d")
	fl.StringVar(&o.keyFile, "key-file", "", "write the key to this new file, for its owner to read, and don't show it")
	return cmd
}

func (o *apiKeyOptions) run() error {
	if o.id == "" {
		return errors.New("give the key's id: --id shop")
	}
	text, key, err := ingest.NewAPIKey(o.id)
	if err != nil {
		return fmt.Errorf("--id %s: %w", printable(o.id), err)
	}
	entry, err := o.entry(key)
	if err != nil {
		return err
	}
	if err := compile.CheckAPIKey(o.id, entry); err != nil {
		return err
	}
	if err := o.handOver(text); err != nil {
		return err
	}
	// Indented as an entry of stringData is.
	out := "  " + o.id + ": |\n"
	for line := range strings.Lines(entry) {
		out += "    " + line
	}
	_, err = io.WriteString(o.Out, out)
	return err
}

// entry is the value of the key's entry in the Secret.
func (o *apiKeyOptions) entry(key ingest.APIKey) (string, error) {
	verbs := o.verbs
	if len(verbs) == 0 {
		verbs = []string{"send"}
		if len(o.endpoints) > 0 {
			verbs = []string{"read"}
		}
	}
	text := "sha256: \"" + hex.EncodeToString(key.SHA256[:]) + "\"\n" +
		"namespaces: " + flowList(o.namespaces) + "\nverbs: " + flowList(verbs) + "\n"
	if len(o.endpoints) > 0 {
		text += "endpoints: " + flowList(o.endpoints) + "\n"
	}
	if o.expires != "" {
		at, err := parseTime("--expires", o.expires, func(d time.Duration) time.Time { return o.Now().Add(d) })
		if err != nil {
			return "", err
		}
		if !at.After(o.Now()) {
			return "", errors.New("--expires is in the past; give a time to come, or how long from now on, such as 90d")
		}
		text += "expiresAt: \"" + at.UTC().Format(time.RFC3339) + "\"\n"
	}
	return text, nil
}

// handOver gives the key to the person, who finds it nowhere else.
func (o *apiKeyOptions) handOver(text string) error {
	if o.keyFile == "" {
		_, err := fmt.Fprintf(o.Err, "The key, shown this once; give it to the caller by a safe way:\n%s\n", text)
		return err
	}
	switch err := manifest.CreateFile(o.keyFile, []byte(text+"\n")); {
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("--key-file %s: the file exists and is left as it is; name another one", printable(o.keyFile))
	case err != nil:
		return fmt.Errorf("--key-file: %w", err)
	}
	_, err := fmt.Fprintf(o.Err, "The key is in %s; give it to the caller by a safe way.\n", printable(o.keyFile))
	return err
}

// flowList is a YAML list on one line, each text quoted: a namespace may be called no.
func flowList(texts []string) string {
	words := make([]string, len(texts))
	for i, text := range texts {
		words[i] = strconv.Quote(text)
	}
	return "[" + strings.Join(words, ", ") + "]"
}

// parseTime reads a time in RFC 3339, or a span such as 90d, 36h or 10m that span makes a time of.
func parseTime(flag, text string, span func(time.Duration) time.Time) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return span(time.Duration(n) * 24 * time.Hour), nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return span(d), nil
	}
	return time.Time{}, fmt.Errorf("%s must be a time such as 2027-01-31T00:00:00Z, or a span such as 90d, 36h or 10m", flag)
}
