package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/doorstep-dev/doorstep/internal/standalone"
)

func newStandaloneCommand(s Streams) *cobra.Command {
	var o standalone.Options
	var verbosity int
	cmd := &cobra.Command{
		Use:   "standalone -f DIR",
		Short: "Run Doorstep on manifests from a folder, with no cluster",
		Long: "Run Doorstep on the manifests of a folder: WebhookEndpoints, RetryPolicies, a DeliveryPool, Secrets and\n" +
			"ConfigMaps. A change of a file is live within 2 seconds. The queue is kept in the data folder.\n\n" +
			"With --dev the API asks for no key, and nothing but loopback addresses is delivered to; with --forward-to\n" +
			"everything is delivered there instead of to the address in the manifest.",
		Example: `  doorstep standalone -f manifests/ --data /var/lib/doorstep
  doorstep standalone --dev --forward-to http://localhost:3000/webhooks -f manifests/`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("standalone takes flags only; did you mean -f %s?", shellWord(args[0]))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Data == "" {
				o.Data = defaultData(s)
			}
			o.Version, o.Out, o.Log = Version(), s.Out, newLogger(s.Err, verbosity)
			o.Planned = tuneMemory()
			return standalone.Run(cmd.Context(), o)
		},
	}
	fl := cmd.Flags()
	fl.StringVarP(&o.Dir, "filename", "f", "", "folder (with all below it) or file of manifests")
	fl.StringVar(&o.Data, "data", "", "folder that keeps the queue and generated keys (default $DOORSTEP_DATA, else doorstep in the user's state folder)")
	fl.StringVar(&o.Listen, "listen", "127.0.0.1:8080", "loopback address of the API")
	fl.BoolVar(&o.Dev, "dev", false, "ask for no API key, and deliver to loopback addresses only")
	fl.StringVar(&o.ForwardTo, "forward-to", "", "with --dev: deliver everything to this URL")
	fl.DurationVar(&o.Grace, "grace", 20*time.Second, "how long attempts in flight may take to end on a stop")
	fl.CountVarP(&verbosity, "verbose", "v", "log also failed attempts, notes on manifests, and what goes wrong with HTTP clients")
	_ = cmd.MarkFlagDirname("filename")
	_ = cmd.MarkFlagDirname("data")
	return cmd
}

// defaultData follows the XDG Base Directory Specification: what is kept between runs but is no configuration.
func defaultData(s Streams) string {
	if dir := s.Getenv("DOORSTEP_DATA"); dir != "" {
		return dir
	}
	if dir := s.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "doorstep")
	}
	if home, err := os.UserHomeDir(); err == nil {
		return filepath.Join(home, ".local", "state", "doorstep")
	}
	return "doorstep-data"
}
