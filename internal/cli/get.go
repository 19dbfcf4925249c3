package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/doorstep-dev/doorstep/internal/ingest"
)

// getOptions are the flags of the get commands.
type getOptions struct {
	Streams
	client   clientFlags
	output   string
	limit    int
	endpoint string
	state    string
	typ      string
	since    time.Duration
}

func newGetCommand(s Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get endpoints|events|deliveries|dead-letters",
		Short: "List endpoints, events, deliveries or dead letters",
		Example: `  doorstep get endpoints -n shop
  doorstep get endpoints -o wide
  doorstep get events --type 'order.*' --since 10m
  doorstep get deliveries --endpoint orders --state retrying
  doorstep get dead-letters -o json`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("say what to get: endpoints, events, deliveries or dead-letters")
		},
	}
	cmd.AddCommand(
		newGetSubcommand(s, "endpoints [NAME]", "endpoint", "List the endpoints of a namespace, or get one",
			(*getOptions).endpoints, nil),
		newGetSubcommand(s, "events [WEBHOOK-ID]", "event", "List events, newest first, or get one with every attempt",
			(*getOptions).events, func(c *cobra.Command, o *getOptions) {
				c.Flags().StringVar(&o.typ, "type", "", `only events of this type, or pattern such as "order.*"`)
				c.Flags().DurationVar(&o.since, "since", 0, "only events accepted within this time, such as 10m")
			}),
		newGetSubcommand(s, "deliveries", "delivery", "List deliveries", (*getOptions).deliveries,
			func(c *cobra.Command, o *getOptions) {
				c.Flags().StringVar(&o.endpoint, "endpoint", "", "only deliveries to this endpoint")
				c.Flags().StringVar(&o.state, "state", "",
					"only deliveries in this state: waiting, pending, retrying, inFlight, held, delivered, deadLettered")
			}),
		newGetSubcommand(s, "dead-letters", "dead-letter", "List dead letters", (*getOptions).deadLetters,
			func(c *cobra.Command, o *getOptions) {
				c.Flags().StringVar(&o.endpoint, "endpoint", "", "only dead letters of this endpoint")
			}),
	)
	return cmd
}

// getExamples are by the alias of what they get.
var getExamples = map[string]string{
	"endpoint": `  doorstep get endpoints -n shop
  doorstep get endpoints -o wide
  doorstep get endpoint orders -o yaml`,
	"event": `  doorstep get events --type 'order.*' --since 10m
  doorstep get event evt_1 -o json`,
	"delivery": `  doorstep get deliveries --state waiting
  doorstep get deliveries --endpoint orders --state retrying`,
	"dead-letter": `  doorstep get dead-letters
  doorstep get dead-letters --endpoint orders -n shop`,
}

func newGetSubcommand(s Streams, use, alias, short string, run func(*getOptions, context.Context, *client, []string) error,
	flags func(*cobra.Command, *getOptions),
) *cobra.Command {
	o := &getOptions{Streams: s}
	cmd := &cobra.Command{Use: use, Aliases: []string{alias}, Short: short, Args: cobra.NoArgs, Example: getExamples[alias]}
	if strings.Contains(use, "[") { // a name may follow
		cmd.Args = cobra.MaximumNArgs(1)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if _, err := isText(o.output); err != nil {
			return err
		}
		if o.limit < 0 {
			return errors.New("--limit must be 0 (all) or more")
		}
		c, err := o.client.client(s)
		if err != nil {
			return err
		}
		return run(o, cmd.Context(), c, args)
	}
	o.client.add(cmd)
	addOutputFlag(cmd, &o.output)
	cmd.Flags().IntVar(&o.limit, "limit", 500, "list at most so many; 0 lists all")
	if flags != nil {
		flags(cmd, o)
	}
	return cmd
}

// show prints a table, or v as it is.
func (o *getOptions) show(v any, t *table) error {
	if text, _ := isText(o.output); !text {
		return printObject(o.Out, o.output, v)
	}
	if len(t.rows) == 0 {
		_, err := fmt.Fprintf(o.Err, "No resources found in %s namespace; name another with -n NAMESPACE.\n", printable(o.client.namespace))
		return err
	}
	return t.print(o.Out, o.output == "wide", o.colours())
}

func (o *getOptions) endpoints(ctx context.Context, c *client, args []string) error {
	if len(args) == 1 {
		var one ingest.Endpoint
		if err := c.do(ctx, request{method: http.MethodGet, path: []string{"endpoints", args[0]}}, &one); err != nil {
			return err
		}
		return o.show(one, o.endpointTable([]ingest.Endpoint{one}))
	}
	list := ingest.EndpointList{Items: []ingest.Endpoint{}}
	err := pages(ctx, c, []string{"endpoints"}, nil, o.limit, func(p ingest.EndpointList) (int, string) {
		list.Items = append(list.Items, p.Items...)
		return len(p.Items), p.Cursor
	})
	if err != nil {
		return err
	}
	return o.show(list, o.endpointTable(list.Items))
}

func (o *getOptions) endpointTable(items []ingest.Endpoint) *table {
	t := &table{
		header: []string{"NAME", "READY", "DELIVERING", "WAITING", "OLDEST", "DEAD", "AGE"},
		wide:   []string{"IN-FLIGHT", "HOST", "POLICY", "LAST-FAILURE", "MESSAGE"},
	}
	now := o.Now()
	for _, e := range items {
		ready, message := "True", e.Lane.Message
		if !e.Ready {
			ready = "False"
		}
		if e.Problem != nil {
			message = e.Problem.Reason + ": " + e.Problem.Message
		}
		t.add(endpointTone(e), e.Name, ready, delivering(e.Lane), strconv.Itoa(e.Deliveries.Waiting),
			until(now, e.Deliveries.OldestDueTime), strconv.Itoa(e.Deliveries.DeadLettered), age(now, e.FirstSeen),
			strconv.Itoa(e.Lane.InFlight), e.Host, e.RetryPolicy, lastFailure(now, e.Lane), message)
	}
	return t
}

// delivering is the state of a lane, with a reason that says more than the state.
func delivering(l ingest.Lane) string {
	if l.State == ingest.LaneBackingOff && l.Reason == "Rejecting" {
		return l.Reason
	}
	return string(l.State)
}

// lastFailure is "3s ago, connect: connection refused"; empty for a lane whose last attempt was good.
func lastFailure(now time.Time, l ingest.Lane) string {
	f := l.LastFailure
	if f == nil {
		return ""
	}
	return age(now, f.Time) + " ago, " + cause(f.Status, f.Reason, f.Message)
}

func endpointTone(e ingest.Endpoint) tone {
	switch {
	case !e.Ready || e.Lane.State == ingest.LaneDisabled:
		return bad
	case e.Lane.State == ingest.LaneBackingOff || e.Lane.State == ingest.LaneDraining || e.Lane.Held:
		return warn
	}
	return plain
}

func (o *getOptions) events(ctx context.Context, c *client, args []string) error {
	if len(args) == 1 {
		event, err := getEvent(ctx, c, args[0], true)
		if err != nil {
			return err
		}
		if text, _ := isText(o.output); !text {
			return printObject(o.Out, o.output, event)
		}
		return describeEvent(o.Streams, c, event)
	}
	query := url.Values{}
	if o.typ != "" {
		query.Set("type", o.typ)
	}
	if o.since > 0 {
		query.Set("since", o.Now().Add(-o.since).UTC().Format(time.RFC3339))
	}
	list := ingest.EventList{Items: []ingest.Event{}}
	err := pages(ctx, c, []string{"events"}, query, o.limit, func(p ingest.EventList) (int, string) {
		list.Items = append(list.Items, p.Items...)
		return len(p.Items), p.Cursor
	})
	if err != nil {
		return err
	}
	t := &table{
		header: []string{"WEBHOOK-ID", "TYPE", "DELIVERED", "WAITING", "DEAD", "AGE"},
		wide:   []string{"ID", "SOURCE", "CONTENT-TYPE"},
	}
	for _, e := range list.Items {
		waiting, delivered, dead := sumStates(e.States)
		t.add(eventTone(waiting, dead), e.WebhookID, e.Type, strconv.Itoa(delivered), strconv.Itoa(waiting),
			strconv.Itoa(dead), age(o.Now(), e.AcceptedAt), e.ID, e.Source, e.ContentType)
	}
	return o.show(list, t)
}

func eventTone(waiting, dead int) tone {
	switch {
	case dead > 0:
		return bad
	case waiting > 0:
		return warn
	}
	return plain
}

func sumStates(states map[ingest.DeliveryState]int) (waiting, delivered, dead int) {
	for state, n := range states {
		switch {
		case state.Waiting():
			waiting += n
		case state == ingest.StateDelivered:
			delivered += n
		default:
			dead += n
		}
	}
	return waiting, delivered, dead
}

func (o *getOptions) listDeliveries(ctx context.Context, c *client, state string) (ingest.DeliveryList, error) {
	path, query := []string{"deliveries"}, url.Values{}
	if o.endpoint != "" {
		path = []string{"endpoints", o.endpoint, "deliveries"}
	}
	if state != "" {
		query.Set("state", state)
	}
	list := ingest.DeliveryList{Items: []ingest.Delivery{}}
	err := pages(ctx, c, path, query, o.limit, func(p ingest.DeliveryList) (int, string) {
		list.Items = append(list.Items, p.Items...)
		return len(p.Items), p.Cursor
	})
	return list, err
}

func (o *getOptions) deliveries(ctx context.Context, c *client, _ []string) error {
	list, err := o.listDeliveries(ctx, c, o.state)
	if err != nil {
		return err
	}
	t := &table{
		header: []string{"WEBHOOK-ID", "TYPE", "ENDPOINT", "STATE", "ATTEMPTS", "LAST-STATUS", "REASON", "DUE", "AGE"},
		wide:   []string{"REPLAYS", "HANDLER-VERSION"},
	}
	now := o.Now()
	for _, d := range list.Items {
		t.add(stateTone(d.State), d.WebhookID, d.Type, d.Endpoint, string(d.State), strconv.Itoa(d.AttemptCount),
			number(d.LastStatus), d.Reason, until(now, d.DueAt), age(now, d.QueuedAt), strconv.Itoa(d.Replays), d.HandlerVersion)
	}
	return o.show(list, t)
}

func stateTone(s ingest.DeliveryState) tone {
	switch s {
	case ingest.StateDelivered:
		return good
	case ingest.StateDeadLettered:
		return bad
	case ingest.StateHeld, ingest.StateRetrying:
		return warn
	}
	return plain
}

func (o *getOptions) deadLetters(ctx context.Context, c *client, _ []string) error {
	list, err := o.listDeliveries(ctx, c, string(ingest.StateDeadLettered))
	if err != nil {
		return err
	}
	t := &table{
		header: []string{"WEBHOOK-ID", "TYPE", "ENDPOINT", "REASON", "ATTEMPTS", "LAST-STATUS", "AGE"},
		wide:   []string{"REPLAYS", "HANDLER-VERSION"},
	}
	for _, d := range list.Items {
		t.add(plain, d.WebhookID, d.Type, d.Endpoint, d.Reason, strconv.Itoa(d.AttemptCount), number(d.LastStatus),
			age(o.Now(), d.EndedAt), strconv.Itoa(d.Replays), d.HandlerVersion)
	}
	return o.show(list, t)
}

func getEvent(ctx context.Context, c *client, webhookID string, explain bool) (ingest.Event, error) {
	query := url.Values{}
	if explain {
		query.Set("explain", "true")
	}
	var event ingest.Event
	err := c.do(ctx, request{method: http.MethodGet, path: []string{"events", webhookID}, query: query}, &event)
	return event, err
}
