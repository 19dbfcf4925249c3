package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"
)

// Streams are what a command reads and writes, and the rest of the world it sees.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	// Getenv looks up an environment variable.
	Getenv func(string) string
	// Now is the wall clock.
	Now func() time.Time
}

// OSStreams are the process's own.
func OSStreams() Streams {
	return Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Now: time.Now}
}

// exitError ends the process with a code; the message, if any, was not printed yet.
type exitError struct {
	code    int
	message string
}

func (e *exitError) Error() string { return e.message }

// The exit codes of send --wait beside 0 and 1, and that of endpoint test.
const (
	exitDeadLettered = 2
	exitTimeout      = 3
	exitNotTaken     = 2
)

// Main runs the command tree with the process's arguments until it is done, or until SIGINT or SIGTERM, and returns
// the exit code; a second signal ends it at once. name is how people call it: "doorstep" or "kubectl doorstep".
func Main(name string) int {
	return Run(signals.SetupSignalHandler(), name, os.Args[1:], OSStreams())
}

// Run runs one command and returns the exit code.
func Run(ctx context.Context, name string, args []string, s Streams) int {
	root := NewCommand(name, s)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	code := 1
	var exit *exitError
	if errors.As(err, &exit) {
		code = exit.code
	}
	if message := err.Error(); message != "" {
		fmt.Fprintln(s.Err, "error: "+message)
	}
	return code
}

// NewCommand gives the whole tree.
func NewCommand(name string, s Streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "doorstep",
		Short: "Durable webhook delivery",
		Long: "Doorstep takes events, and keeps knocking at each webhook endpoint until the event is signed for,\n" +
			"parked with its full history, or told to stop.",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: name},
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	root.Version = Version()
	root.SetVersionTemplate("doorstep {{.Version}}\n")
	root.Flags().Bool("version", false, "print the version") // cobra's own would take -v as well
	root.SetFlagErrorFunc(suggestFlag)
	root.AddCommand(
		newSendCommand(s),
		newGetCommand(s),
		newExplainCommand(s),
		newReplayCommand(s),
		newEraseCommand(s),
		newEndpointCommand(s),
		newAPIKeyCommand(s),
		newReceiveCommand(s),
		newStandaloneCommand(s),
		newManagerCommand(s),
		newWorkerCommand(s),
		newVersionCommand(s),
	)
	return root
}

// suggestFlag names the flag that was meant: the data folder is --data where it is used, and --data-dir where only the
// key in it is, since send has --data for the event.
func suggestFlag(cmd *cobra.Command, err error) error {
	var about interface{ GetSpecifiedName() string }
	if !errors.As(err, &about) {
		return err
	}
	given := about.GetSpecifiedName()
	meant := map[string]string{"data": "data-dir", "data-dir": "data"}[given]
	if cmd.Flags().Lookup(given) != nil || meant == "" || cmd.Flags().Lookup(meant) == nil {
		return err
	}
	return fmt.Errorf("%w; did you mean --%s?", err, meant)
}

// oneArg wants one argument, and says which.
func oneArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%s takes %s", cmd.CommandPath(), what)
		}
		return nil
	}
}

func newVersionCommand(s Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(s.Out, "doorstep "+Version())
			return err
		},
	}
}

// version is set by the linker: -X github.com/doorstep-dev/doorstep/internal/cli.version=v1.2.3.
var version string

// Version is the build's version: what the linker set, else the module's, else "devel".
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

// newLogger logs as text to stderr. verbosity 0 shows what people need, each step more shows one more V level.
func newLogger(w io.Writer, verbosity int) logr.Logger {
	return logr.FromSlogHandler(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.Level(-verbosity)}))
}

// isTerminal reports whether w is a terminal that takes colour.
func (s Streams) isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func (s Streams) colours() bool {
	return s.Getenv("NO_COLOR") == "" && s.Getenv("TERM") != "dumb" && s.isTerminal(s.Out)
}
