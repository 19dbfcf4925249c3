package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/doorstep-dev/doorstep/client"
)

func newExplainCommand(s Streams) *cobra.Command {
	var flags clientFlags
	var output string
	cmd := &cobra.Command{
		Use:   "explain WEBHOOK-ID",
		Short: "Say why each endpoint did or didn't get an event",
		Long: "Say of each endpoint of the namespace why it did or didn't get an event, and list every attempt; below a\n" +
			"failed one is the first line of what the receiver answered.",
		Example: `  doorstep explain evt_1
  doorstep explain evt_1 -n shop
  doorstep explain evt_1 -o json`,
		Args: oneArg("a WEBHOOK-ID, as `doorstep get events` lists them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := isText(output)
			if err != nil {
				return err
			}
			return flags.call(s, func(c *api) error {
				event, err := c.Explain(cmd.Context(), c.namespace, args[0])
				if err != nil {
					return err
				}
				if !text {
					return printObject(s.Out, output, event)
				}
				return describeEvent(s, c, event)
			})
		},
	}
	flags.add(cmd)
	addOutputFlag(cmd, &output)
	return cmd
}

// describeEvent prints an event, why each endpoint did or didn't get it, and every attempt.
func describeEvent(s Streams, c *api, e client.AcceptedEvent) error {
	facts := [][2]string{
		{"Webhook-ID", e.WebhookID}, {"Namespace", e.Namespace}, {"ID", e.ID}, {"Source", e.Source}, {"Type", e.Type},
		{"Subject", e.Subject}, {"Content-Type", e.ContentType},
		{"Accepted", timeAndAge(s, e.AcceptedAt)}, {"Erased", timeAndAge(s, e.ErasedAt)},
	}
	for _, f := range facts {
		if f[1] == "" {
			continue
		}
		if _, err := fmt.Fprintf(s.Out, "%-14s%s\n", f[0]+":", printable(f[1])); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintln(s.Out); err != nil {
		return err
	}
	if len(e.Explanations) == 0 {
		_, err := fmt.Fprintln(s.Out, "There is no endpoint in the namespace: nobody gets this event.")
		return err
	}
	why := &table{header: []string{"ENDPOINT", "WHY", "MESSAGE"}}
	for _, x := range e.Explanations {
		why.add(whyTone(e, x), x.Endpoint, x.Reason, x.Message)
	}
	if err := why.print(s.Out, false, s.colours()); err != nil {
		return err
	}
	if err := describeDeadLetters(s, c, e); err != nil {
		return err
	}
	return describeAttempts(s, e)
}

// describeDeadLetters says of each dead letter what the last attempt failed with, and how to send it again.
func describeDeadLetters(s Streams, c *api, e client.AcceptedEvent) error {
	for _, d := range e.Deliveries {
		if d.State != client.StateDeadLettered {
			continue
		}
		text := "\n" + printable(d.Endpoint) + ":"
		if cause := lastCause(d); cause != "" {
			text += " the last attempt failed with " + printable(cause) + "."
		}
		text += " Replay it with:\n  " + c.command("replay", e.WebhookID, "--endpoint", d.Endpoint) + "\n"
		if _, err := fmt.Fprint(s.Out, text); err != nil {
			return err
		}
	}
	return nil
}

// lastCause is why the last attempt of a delivery failed; empty if it didn't, or if there was none.
func lastCause(d client.Delivery) string {
	if len(d.Attempts) == 0 {
		return ""
	}
	last := d.Attempts[len(d.Attempts)-1]
	return cause(last.Status, last.Reason, last.Message)
}

// cause is why an attempt failed: "timeout: no answer within 15s". The message says which status code there was.
func cause(status int, reason, message string) string {
	message = firstSet(message, number(status))
	if reason == "" || message == "" {
		return reason + message
	}
	return reason + ": " + message
}

// whyTone is the tone of the delivery that an explanation is about.
func whyTone(e client.AcceptedEvent, x client.Explanation) tone {
	for _, d := range e.Deliveries {
		if d.Endpoint == x.Endpoint {
			return stateTone(d.State)
		}
	}
	return plain
}

func describeAttempts(s Streams, e client.AcceptedEvent) error {
	t := &table{header: []string{"ENDPOINT", "ATTEMPT", "AT", "TOOK", "STATUS", "OUTCOME", "REASON", "MESSAGE"}}
	for _, d := range e.Deliveries {
		for _, a := range d.Attempts {
			t.add(attemptTone(a), d.Endpoint, strconv.Itoa(a.Number), a.StartedAt.UTC().Format(time.RFC3339),
				took(a.DurationMS), number(a.Status), a.Outcome, a.Reason, a.Message)
			if answer := firstLine(a.Response); answer != "" {
				t.note("answer: " + answer)
			}
		}
	}
	if len(t.rows) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(s.Out); err != nil {
		return err
	}
	return t.print(s.Out, false, s.colours())
}

// maxAnswerRunes is how much of a receiver's answer is shown.
const maxAnswerRunes = 120

// firstLine is the first line of an answer that isn't blank, its control characters made visible.
func firstLine(response []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(response)), "\n")
	shown := []rune(printable(strings.TrimSpace(line)))
	if len(shown) > maxAnswerRunes {
		shown = append(shown[:maxAnswerRunes-1], '…')
	}
	return string(shown)
}

func attemptTone(a client.Attempt) tone {
	if a.Outcome == "delivered" {
		return good
	}
	return warn
}

// took rounds to what a person compares.
func took(ms float64) string {
	d := time.Duration(ms * float64(time.Millisecond))
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Microsecond).String()
}
