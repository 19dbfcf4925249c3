package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/doorstep-dev/doorstep/client"
)

func newEndpointCommand(s Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "endpoint status|test|retry|enable NAME",
		Short: "Look at one endpoint, test it, retry what waits, or bring a disabled one back",
		Example: `  doorstep endpoint status orders
  doorstep endpoint test orders
  doorstep endpoint enable orders -n shop`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("say what to do: endpoint status, test, retry or enable NAME")
		},
	}
	cmd.AddCommand(
		newEndpointSubcommand(s, "status NAME", "Show one endpoint in words", "", showEndpoint),
		newEndpointSubcommand(s, "test NAME", "Send a test event to an endpoint and tell how it went",
			"Make one attempt of an event of type doorstep.test, as any other is made, whatever state the lane is in. Nothing\n"+
				"of it is kept. Exit code 2: the receiver did not take it.", testEndpoint),
		newEndpointSubcommand(s, "retry NAME", "Make what waits for its next attempt due now",
			"Make what waits for its next attempt due now. What is held stays held, and a lane that backs off goes on one at a\n"+
				"time.", retryEndpoint),
		newEndpointSubcommand(s, "enable NAME", "Bring a disabled endpoint back, or knock at once where one backs off", "", enableEndpoint),
	)
	return cmd
}

// endpointAct is what a subcommand does with an endpoint; because is for the audit record.
type endpointAct func(ctx context.Context, s Streams, c *api, name, because string) error

func newEndpointSubcommand(s Streams, use, short, long string, run endpointAct) *cobra.Command {
	var flags clientFlags
	var because string
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Args: oneArg("an endpoint's NAME, as `doorstep get endpoints` lists them"),
		Example: "  doorstep endpoint " + strings.Replace(use, "NAME", "orders -n shop", 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return flags.call(s, func(c *api) error { return run(cmd.Context(), s, c, args[0], because) })
		},
	}
	flags.add(cmd)
	if !strings.HasPrefix(use, "status") {
		addBecauseFlag(cmd, &because)
	}
	return cmd
}

// testEndpoint tells of the one attempt as of any other.
func testEndpoint(ctx context.Context, s Streams, c *api, name, because string) error {
	result, err := c.Test(ctx, c.namespace, name, because)
	if err != nil {
		return err
	}
	if result.Delivered {
		_, err := fmt.Fprintf(s.Out, "endpoint/%s took the test %s: answer %d after %s\n",
			result.Endpoint, result.WebhookID, result.Status, took(result.DurationMS))
		return err
	}
	text := fmt.Sprintf("endpoint/%s did not take the test %s: %s, after %s\n", result.Endpoint, result.WebhookID,
		printable(firstSet(cause(result.Status, result.Reason, result.Message), "it gave no reason")), took(result.DurationMS))
	if answer := firstLine(result.Response); answer != "" {
		text += "  answer: " + answer + "\n"
	}
	if _, err := fmt.Fprint(s.Out, text); err != nil {
		return err
	}
	return &exitError{code: exitNotTaken}
}

func retryEndpoint(ctx context.Context, s Streams, c *api, name, because string) error {
	result, err := c.Retry(ctx, c.namespace, name, because)
	if err != nil {
		return err
	}
	words := deliveries(result.Retried) + " made due now"
	if result.Retried == 0 {
		words = "nothing waits for a next attempt"
	}
	_, err = fmt.Fprintf(s.Out, "endpoint/%s: %s\n", result.Endpoint, words)
	return err
}

func enableEndpoint(ctx context.Context, s Streams, c *api, name, because string) error {
	result, err := c.Enable(ctx, c.namespace, name, because)
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

func showEndpoint(ctx context.Context, s Streams, c *api, name, _ string) error {
	e, err := c.Endpoint(ctx, c.namespace, name)
	if err != nil {
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
		{"Limited by", e.Lane.LimitedBy},
		{"Last failure", lastFailure(s.Now(), e.Lane)}, {"Host", e.Host},
		{"Event types", types}, {"Retry policy", policy}, {"In flight", inFlight},
		{"Waiting", fmt.Sprintf("%d (%d never tried, %d retrying)", e.Deliveries.Waiting, e.Deliveries.Pending, e.Deliveries.Retrying)},
		{"Oldest due", until(s.Now(), e.Deliveries.OldestDueTime)}, {"Dead letters", fmt.Sprint(e.Deliveries.DeadLettered)},
		{"Filter errors", number(e.Deliveries.FilterError)},
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
func suggestEnable(s Streams, c *api, e client.Endpoint) error {
	words := map[client.LaneState]string{
		client.LaneDisabled: "Bring it back", client.LaneBackingOff: "Make the next attempt now",
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
