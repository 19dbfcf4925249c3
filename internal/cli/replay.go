package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/doorstep-dev/doorstep/client"
)

// replayOptions are the flags of replay.
type replayOptions struct {
	Streams
	client             clientFlags
	endpoint, because  string
	force, yes, dryRun bool
	deadLetters        bool
	// What selects deliveries, as it was given.
	states, types, reasons, versions []string
	statuses                         []int
	since, until                     string
}

func newReplayCommand(s Streams) *cobra.Command {
	o := &replayOptions{Streams: s}
	cmd := &cobra.Command{
		Use:   "replay WEBHOOK-ID | replay --endpoint NAME [--state STATE] [--since TIME] [--type TYPE] …",
		Short: "Send an event again, with a fresh retry budget",
		Long: "Send an event again to the endpoint that is named, or to each where it is a dead letter.\n\n" +
			"Without a WEBHOOK-ID: send those finished deliveries of an endpoint again to which all of --state, --since,\n" +
			"--until, --type, --reason, --status and --handler-version apply that are given. How many these are is told\n" +
			"first, and asked about. What somebody else changes meanwhile is left out.",
		Example: `  doorstep replay evt_1
  doorstep replay evt_1 --endpoint orders --force -n shop
  doorstep replay --dead-letters --endpoint orders --yes
  doorstep replay --endpoint orders --since 2h --type 'order.*' --status 500,503 --dry-run
  doorstep replay --endpoint orders --state delivered --handler-version v41 --force`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(args); err != nil {
				return err
			}
			return o.client.call(s, func(c *api) error {
				if len(args) == 1 {
					return o.replayEvent(cmd.Context(), c, args[0])
				}
				return o.replaySelection(cmd.Context(), c)
			})
		},
	}
	o.client.add(cmd)
	fl := cmd.Flags()
	fl.StringVar(&o.endpoint, "endpoint", "", "send to this endpoint only")
	fl.BoolVar(&o.force, "force", false, "send again also what was delivered")
	fl.BoolVar(&o.deadLetters, "dead-letters", false, "the same as --state deadLettered")
	fl.StringSliceVar(&o.states, "state", nil, "only deliveries in this state: deadLettered, filterError, or with --force delivered; may be repeated")
	fl.StringVar(&o.since, "since", "", "only events accepted since: a time such as 2027-01-31T00:00:00Z, or a span such as 2h")
	fl.StringVar(&o.until, "until", "", "only events accepted before: a time or a span")
	fl.StringSliceVar(&o.types, "type", nil, `only events of this type, or pattern such as "order.*"; may be repeated`)
	fl.StringSliceVar(&o.reasons, "reason", nil, "only deliveries that ended for this reason, such as OutOfAttempts; may be repeated")
	fl.IntSliceVar(&o.statuses, "status", nil, "only deliveries with this last answer, such as 503, or 0 for none; may be repeated")
	fl.StringSliceVar(&o.versions, "handler-version", nil, "only deliveries last answered by this version of the receiver; may be repeated")
	fl.BoolVar(&o.dryRun, "dry-run", false, "tell how many deliveries are selected, and send nothing")
	fl.BoolVarP(&o.yes, "yes", "y", false, "don't ask before a replay by selection")
	addBecauseFlag(cmd, &o.because)
	return cmd
}

// addBecauseFlag adds what goes into the audit record; --reason is that of a delivery.
func addBecauseFlag(cmd *cobra.Command, because *string) {
	cmd.Flags().StringVar(because, "because", "", "why, for the audit record: one line")
}

// selects reports whether a flag that selects deliveries was given.
func (o *replayOptions) selects() bool {
	return o.deadLetters || len(o.states)+len(o.types)+len(o.reasons)+len(o.statuses)+len(o.versions) > 0 ||
		o.since != "" || o.until != ""
}

func (o *replayOptions) check(args []string) error {
	switch {
	case len(args) > 0 && (o.selects() || o.dryRun):
		return errors.New("a WEBHOOK-ID names the one event; leave it out to select by --state, --since, --type and so on")
	case len(args) > 0:
		return nil
	case !o.selects():
		return errors.New("give the event's WEBHOOK-ID, as `doorstep get events` lists them, or --dead-letters --endpoint NAME, " +
			"or select by --state, --since, --type and so on")
	case o.endpoint == "":
		return errors.New("a replay by selection needs --endpoint NAME")
	case o.deadLetters && len(o.states) > 0:
		return errors.New("--dead-letters is the same as --state deadLettered; give one of the two")
	}
	return nil
}

func (o *replayOptions) replayEvent(ctx context.Context, c *api, webhookID string) error {
	result, err := c.Replay(ctx, c.namespace, webhookID, client.ReplayRequest{Endpoint: o.endpoint, Force: o.force, Reason: o.because})
	var answer *client.Problem
	if errors.As(err, &answer) && answer.Kind() == "already-delivered" {
		// The API names the member of its JSON.
		answer.Detail = "The event was already delivered; give --force to send it again."
	}
	if err != nil {
		return err
	}
	for _, endpoint := range result.Replayed {
		if _, err := fmt.Fprintf(o.Out, "event/%s replayed to %s\n", result.WebhookID, endpoint); err != nil {
			return err
		}
	}
	return nil
}

// replaySelection counts first and replays then.
func (o *replayOptions) replaySelection(ctx context.Context, c *api) error {
	selection, err := o.selection()
	if err != nil {
		return err
	}
	selected, err := o.steps(ctx, c, client.SelectedReplayRequest{Select: selection, Force: o.force, DryRun: true})
	if err != nil {
		return err
	}
	switch {
	case selected.Matched == 0:
		_, err := fmt.Fprintf(o.Err, "No deliveries of endpoint %s in %s namespace are selected.\n", printable(o.endpoint), printable(c.namespace))
		return err
	case o.dryRun:
		_, err := fmt.Fprintf(o.Out, "%s of endpoint %s would be replayed\n", deliveries(selected.Matched), selected.Endpoint)
		return err
	case !o.yes && !o.confirmed(fmt.Sprintf("Send %s of endpoint %s again?", deliveries(selected.Matched), printable(o.endpoint))):
		return errors.New("nothing was replayed; answer y, or give --yes")
	}
	done, err := o.steps(ctx, c, client.SelectedReplayRequest{Select: selection, Force: o.force, Reason: o.because})
	if err != nil {
		return fmt.Errorf("after %d of %d: %w", done.Replayed, selected.Matched, err)
	}
	_, err = fmt.Fprintf(o.Out, "%s of endpoint %s replayed%s\n", deliveries(done.Replayed), done.Endpoint, skipped(done.Skipped))
	return err
}

// selection is what the flags pick.
func (o *replayOptions) selection() (client.Selection, error) {
	s := client.Selection{EventTypes: o.types, Reasons: o.reasons, StatusCodes: o.statuses, HandlerVersions: o.versions}
	if o.deadLetters {
		s.States = []client.DeliveryState{client.StateDeadLettered}
	}
	for _, state := range o.states {
		s.States = append(s.States, client.DeliveryState(state))
	}
	var err error
	if s.Since, err = o.ago("--since", o.since); err != nil {
		return s, err
	}
	s.Until, err = o.ago("--until", o.until)
	return s, err
}

// ago reads a time, or a span that ends now; empty is no time.
func (s Streams) ago(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	return parseTime(flag, text, func(d time.Duration) time.Time { return s.Now().Add(-d) })
}

// steps goes on until everything was looked at, and sums up what was done; after an error, what was done before it.
func (o *replayOptions) steps(ctx context.Context, c *api, q client.SelectedReplayRequest) (client.SelectedReplayResult, error) {
	var sum client.SelectedReplayResult
	for {
		step, err := c.ReplaySelection(ctx, c.namespace, o.endpoint, q)
		if err != nil {
			return sum, err
		}
		if q.Cursor != "" && step.Cursor == q.Cursor {
			return sum, client.ErrForeign // the same step for ever
		}
		sum.Endpoint, q.Cursor = step.Endpoint, step.Cursor
		sum.Matched, sum.Replayed, sum.Skipped = sum.Matched+step.Matched, sum.Replayed+step.Replayed, sum.Skipped+step.Skipped
		if q.Cursor == "" {
			return sum, nil
		}
	}
}

// confirmed asks a person for a yes.
func (s Streams) confirmed(question string) bool {
	fmt.Fprint(s.Err, question+" [y/N] ")
	line, err := bufio.NewReader(s.In).ReadString('\n')
	answer := strings.ToLower(strings.TrimSpace(line))
	if err != nil && answer == "" {
		fmt.Fprintln(s.Err)
	}
	return answer == "y" || answer == "yes"
}

func deliveries(n int) string {
	if n == 1 {
		return "1 delivery"
	}
	return fmt.Sprintf("%d deliveries", n)
}

func skipped(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("; %d had been changed by somebody else", n)
}
