package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/doorstep-dev/doorstep/internal/ingest"
)

// replayOptions are the flags of replay.
type replayOptions struct {
	Streams
	client      clientFlags
	endpoint    string
	force, yes  bool
	deadLetters bool
}

func newReplayCommand(s Streams) *cobra.Command {
	o := &replayOptions{Streams: s}
	cmd := &cobra.Command{
		Use:   "replay WEBHOOK-ID | replay --dead-letters --endpoint NAME",
		Short: "Send an event again, with a fresh retry budget",
		Long: "Send an event again to the endpoint that is named, or to each where it is a dead letter.\n" +
			"With --dead-letters: send every dead letter of an endpoint again.",
		Example: `  doorstep replay evt_1
  doorstep replay evt_1 --endpoint orders --force -n shop
  doorstep replay --dead-letters --endpoint orders --yes`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.client.client(s)
			if err != nil {
				return err
			}
			switch {
			case o.deadLetters && (len(args) > 0 || o.endpoint == "" || o.force):
				return errors.New("--dead-letters needs --endpoint, and takes neither a webhook-id nor --force")
			case o.deadLetters:
				return o.replayDeadLetters(cmd.Context(), c)
			case len(args) == 0:
				return errors.New("give the event's WEBHOOK-ID, as `doorstep get events` lists them, or --dead-letters --endpoint NAME")
			}
			return o.replayEvent(cmd.Context(), c, args[0])
		},
	}
	o.client.add(cmd)
	fl := cmd.Flags()
	fl.StringVar(&o.endpoint, "endpoint", "", "send to this endpoint only")
	fl.BoolVar(&o.force, "force", false, "send again also what was delivered")
	fl.BoolVar(&o.deadLetters, "dead-letters", false, "send every dead letter of the endpoint again")
	fl.BoolVarP(&o.yes, "yes", "y", false, "don't ask before --dead-letters")
	return cmd
}

func (o *replayOptions) replayEvent(ctx context.Context, c *client, webhookID string) error {
	result, err := replay(ctx, c, webhookID, o.endpoint, o.force)
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

func replay(ctx context.Context, c *client, webhookID, endpoint string, force bool) (ingest.ReplayResult, error) {
	body, err := json.Marshal(ingest.ReplayRequest{Endpoint: endpoint, Force: force})
	if err != nil {
		return ingest.ReplayResult{}, err
	}
	var result ingest.ReplayResult
	err = c.do(ctx, request{method: http.MethodPost, path: []string{"events", webhookID, "replay"}, body: body}, &result)
	var answer *apiError
	if errors.As(err, &answer) && strings.HasSuffix(answer.problem.Type, "/already-delivered") {
		// The API names the member of its JSON.
		answer.problem.Detail = "The event was already delivered; give --force to send it again."
	}
	return result, err
}

// replayDeadLetters lists first and replays then: what becomes a dead letter again meanwhile is not sent a second time.
func (o *replayOptions) replayDeadLetters(ctx context.Context, c *client) error {
	var ids []string
	query := url.Values{"state": {string(ingest.StateDeadLettered)}}
	err := pages(ctx, c, []string{"endpoints", o.endpoint, "deliveries"}, query, 0, func(p ingest.DeliveryList) (int, string) {
		for _, d := range p.Items {
			ids = append(ids, d.WebhookID)
		}
		return len(p.Items), p.Cursor
	})
	if err != nil {
		return err
	}
	if len(ids) == 0 {
		_, err := fmt.Fprintf(o.Err, "No dead letters of endpoint %s in %s namespace; name another with -n NAMESPACE.\n",
			o.endpoint, printable(c.namespace))
		return err
	}
	if !o.yes {
		if err := o.confirm(len(ids)); err != nil {
			return err
		}
	}
	replayed := 0
	for _, id := range ids {
		_, err := replay(ctx, c, id, o.endpoint, false)
		var answer *apiError
		switch {
		case err == nil:
			replayed++
		case errors.As(err, &answer) && answer.problem.Status == http.StatusConflict:
			// Somebody else replayed it first.
		default:
			return fmt.Errorf("after %d of %d: %w", replayed, len(ids), err)
		}
	}
	_, err = fmt.Fprintf(o.Out, "%d of %d dead letters of endpoint %s replayed\n", replayed, len(ids), o.endpoint)
	return err
}

func (o *replayOptions) confirm(n int) error {
	fmt.Fprintf(o.Err, "Send %d dead letters of endpoint %s again? [y/N] ", n, o.endpoint)
	line, err := bufio.NewReader(o.In).ReadString('\n')
	if answer := strings.ToLower(strings.TrimSpace(line)); answer == "y" || answer == "yes" {
		return nil
	}
	if err != nil {
		fmt.Fprintln(o.Err)
	}
	return errors.New("nothing was replayed; answer y, or give --yes")
}

func newEndpointCommand(s Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "endpoint enable|status NAME",
		Short: "Look at one endpoint, or bring a disabled one back",
		Example: `  doorstep endpoint status orders
  doorstep endpoint enable orders -n shop`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("say what to do: endpoint enable NAME, or endpoint status NAME")
		},
	}
	cmd.AddCommand(
		newEndpointSubcommand(s, "enable NAME", "Bring a disabled endpoint back, or knock at once where one backs off", enableEndpoint),
		newEndpointSubcommand(s, "status NAME", "Show one endpoint in words", showEndpoint),
	)
	return cmd
}

func newEndpointSubcommand(s Streams, use, short string, run func(context.Context, Streams, *client, string) error) *cobra.Command {
	var flags clientFlags
	cmd := &cobra.Command{
		Use: use, Short: short, Args: oneArg("an endpoint's NAME, as `doorstep get endpoints` lists them"),
		Example: "  doorstep endpoint " + strings.Replace(use, "NAME", "orders -n shop", 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := flags.client(s)
			if err != nil {
				return err
			}
			return run(cmd.Context(), s, c, args[0])
		},
	}
	flags.add(cmd)
	return cmd
}

func enableEndpoint(ctx context.Context, s Streams, c *client, name string) error {
	var result ingest.EnableResult
	err := c.do(ctx, request{method: http.MethodPost, path: []string{"endpoints", name, "enable"}, body: []byte("{}")}, &result)
	if err != nil {
		return err
	}
	word := " enabled"
	switch {
	case result.Message != "":
		word = ": " + printable(result.Message)
	case !result.WasDisabled:
		word = fmt.Sprintf(" unchanged: it was not disabled (%s)", result.State)
	}
	_, err = fmt.Fprintf(s.Out, "endpoint/%s%s\n", result.Endpoint, word)
	return err
}

func showEndpoint(ctx context.Context, s Streams, c *client, name string) error {
	var e ingest.Endpoint
	if err := c.do(ctx, request{method: http.MethodGet, path: []string{"endpoints", name}}, &e); err != nil {
		return err
	}
	state, reason := delivering(e.Lane), e.Lane.Reason
	if reason == state {
		reason = ""
	}
	ready := "True"
	if !e.Ready {
		ready = "False"
		if e.Problem != nil {
			ready += ", " + e.Problem.Reason + ": " + e.Problem.Message
		}
	}
	types, policy, inFlight := firstSet(strings.Join(e.EventTypes, ", "), "all"), firstSet(e.RetryPolicy, "default"),
		fmt.Sprintf("%d of %d", e.Lane.InFlight, e.MaxInFlight)
	if e.MaxInFlight == 0 { // not in the plan: its settings are not known
		types, policy, inFlight = "", "", number(e.Lane.InFlight)
	}
	facts := [][2]string{
		{"Name", e.Namespace + "/" + e.Name}, {"Ready", ready}, {"Delivering", state}, {"Reason", reason}, {"Message", e.Lane.Message},
		{"Since", timeAndAge(s, e.Lane.Since)}, {"Next try", until(s.Now(), e.Lane.RetryAt)},
		{"Last failure", lastFailure(s.Now(), e.Lane)}, {"Host", e.Host},
		{"Event types", types}, {"Retry policy", policy}, {"In flight", inFlight},
		{"Waiting", fmt.Sprintf("%d (%d never tried, %d retrying)", e.Deliveries.Waiting, e.Deliveries.Pending, e.Deliveries.Retrying)},
		{"Oldest due", until(s.Now(), e.Deliveries.OldestDueTime)}, {"Dead letters", fmt.Sprint(e.Deliveries.DeadLettered)},
	}
	for _, f := range facts {
		if f[1] == "" {
			continue
		}
		if _, err := fmt.Fprintf(s.Out, "%-14s%s\n", f[0]+":", printable(f[1])); err != nil {
			return err
		}
	}
	return suggestEnable(s, c, e)
}

// suggestEnable gives the command that helps a lane which waits for it, or may be spared the wait.
func suggestEnable(s Streams, c *client, e ingest.Endpoint) error {
	words := map[ingest.LaneState]string{
		ingest.LaneDisabled: "Bring it back", ingest.LaneBackingOff: "Make the next attempt now",
	}[e.Lane.State]
	if words == "" {
		return nil
	}
	_, err := fmt.Fprintf(s.Out, "\n%s with:\n  %s\n", words, c.command("endpoint", "enable", e.Name))
	return err
}

func timeAndAge(s Streams, t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339) + " (" + age(s.Now(), t) + " ago)"
}
