package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

// eraseOptions are the flags of erase.
type eraseOptions struct {
	Streams
	client  clientFlags
	because string
	yes     bool
}

func newEraseCommand(s Streams) *cobra.Command {
	o := &eraseOptions{Streams: s}
	cmd := &cobra.Command{
		Use:   "erase WEBHOOK-ID",
		Short: "Forget an event's payload for good",
		Long: "Forget an event's payload and what receivers answered to it. Its id, its hash and the outcomes stay, so that the\n" +
			"same event is still a duplicate. Deliveries of it that wait are not made any more. This can't be undone.",
		Example: `  doorstep erase evt_1
  doorstep erase evt_1 -n shop --yes --because 'request 4711'`,
		Args: oneArg("a WEBHOOK-ID, as `doorstep get events` lists them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.client.call(s, func(c *api) error { return o.erase(cmd.Context(), c, args[0]) })
		},
	}
	o.client.add(cmd)
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "don't ask")
	addBecauseFlag(cmd, &o.because)
	return cmd
}

func (o *eraseOptions) erase(ctx context.Context, c *api, webhookID string) error {
	if !o.yes && !o.confirmed("Erase the payload of event "+printable(webhookID)+" for good?") {
		return errors.New("nothing was erased; answer y, or give --yes")
	}
	result, err := c.Erase(ctx, c.namespace, webhookID, o.because)
	if err != nil {
		return err
	}
	words := "erased"
	if result.Again {
		words = "had been erased before"
	}
	if result.DeadLettered > 0 {
		words += "; no longer to be made: " + deliveries(result.DeadLettered)
	}
	_, err = fmt.Fprintf(o.Out, "event/%s %s\n", result.WebhookID, words)
	return err
}
