package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/doorstep-dev/doorstep/client"
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
	since    string
	until    string
	oldest   bool
	action   string
	target   string
}

func newGetCommand(s Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get endpoints|events|deliveries|dead-letters|audit",
		Short: "List endpoints, events, deliveries, dead letters or what was done by whom",
		Example: `  doorstep get endpoints -n shop
  doorstep get endpoints -o wide
  doorstep get events --type 'order.*' --since 10m
  doorstep get deliveries --endpoint orders --state retrying
  doorstep get dead-letters -o json
  doorstep get audit`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("say what to get: endpoints, events, deliveries, dead-letters or audit")
		},
	}
	cmd.AddCommand(
		newGetSubcommand(s, "endpoints [NAME]", "endpoint", "List the endpoints of a namespace, or get one",
			(*getOptions).endpoints, nil),
		newGetSubcommand(s, "events [WEBHOOK-ID]", "event", "List events, newest first, or get one with every attempt",
			(*getOptions).events, func(c *cobra.Command, o *getOptions) {
				c.Flags().StringVar(&o.typ, "type", "", `only events of this type, or pattern such as "order.*"`)
				o.addSpanFlags(c)
				c.Flags().BoolVar(&o.oldest, "oldest-first", false, "list in the order of acceptance")
			}),
		newGetSubcommand(s, "deliveries", "delivery", "List deliveries", (*getOptions).deliveries,
			func(c *cobra.Command, o *getOptions) {
				c.Flags().StringVar(&o.endpoint, "endpoint", "", "only deliveries to this endpoint")
				c.Flags().StringVar(&o.state, "state", "",
					"only deliveries in this state: waiting, pending, retrying, inFlight, held, delivered, deadLettered, filterError, discarded")
				o.addSpanFlags(c)
			}),
		newGetSubcommand(s, "dead-letters", "dead-letter", "List dead letters", (*getOptions).deadLetters,
			func(c *cobra.Command, o *getOptions) {
				c.Flags().StringVar(&o.endpoint, "endpoint", "", "only dead letters of this endpoint")
				o.addSpanFlags(c)
			}),
		newGetSubcommand(s, "audit", "audits", "List what was done by whom, newest first", (*getOptions).audit,
			func(c *cobra.Command, o *getOptions) {
				c.Flags().StringVar(&o.action, "action", "", "only this action: replay, erase, enable, retry or test")
				c.Flags().StringVar(&o.target, "target", "", "only what was done to this webhook-id or endpoint")
			}),
	)
	return cmd
}

func (o *getOptions) addSpanFlags(c *cobra.Command) {
	c.Flags().StringVar(&o.since, "since", "", "only events accepted since: a time such as 2027-01-31T00:00:00Z, or a span such as 10m or 2d")
	c.Flags().StringVar(&o.until, "until", "", "only events accepted before: a time or a span")
}

// span reads --since and --until.
func (o *getOptions) span() (since, until time.Time, err error) {
	if since, err = o.ago("--since", o.since); err != nil {
		return since, until, err
	}
	until, err = o.ago("--until", o.until)
	return since, until, err
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
	"audits": `  doorstep get audit -n shop
  doorstep get audit --action replay --target evt_1`,
	"dead-letter": `  doorstep get dead-letters
  doorstep get dead-letters --endpoint orders -n shop`,
}

func newGetSubcommand(s Streams, use, alias, short string, run func(*getOptions, context.Context, *api, []string) error,
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
		return o.client.call(s, func(c *api) error { return run(o, cmd.Context(), c, args) })
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

func (o *getOptions) endpoints(ctx context.Context, c *api, args []string) error {
	if len(args) == 1 {
		one, err := c.Endpoint(ctx, c.namespace, args[0])
		if err != nil {
			return err
		}
		return o.show(one, o.endpointTable([]client.Endpoint{one}))
	}
	items, err := collect(c.Endpoints(ctx, c.namespace, pageSize(o.limit)), o.limit)
	if err != nil {
		return err
	}
	return o.show(client.EndpointList{Items: items}, o.endpointTable(items))
}

func (o *getOptions) endpointTable(items []client.Endpoint) *table {
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
func delivering(l client.Lane) string {
	if l.State == client.LaneBackingOff && l.Reason == "Rejecting" {
		return l.Reason
	}
	return string(l.State)
}

// lastFailure is "3s ago, connect: connection refused"; empty for a lane whose last attempt was good.
func lastFailure(now time.Time, l client.Lane) string {
	f := l.LastFailure
	if f == nil {
		return ""
	}
	return age(now, f.Time) + " ago, " + cause(f.Status, f.Reason, f.Message)
}

func endpointTone(e client.Endpoint) tone {
	switch {
	case !e.Ready || e.Lane.State == client.LaneDisabled:
		return bad
	case e.Lane.State == client.LaneBackingOff || e.Lane.State == client.LaneDraining || e.Lane.Held:
		return warn
	}
	return plain
}

func (o *getOptions) events(ctx context.Context, c *api, args []string) error {
	if len(args) == 1 {
		event, err := c.Explain(ctx, c.namespace, args[0])
		if err != nil {
			return err
		}
		if text, _ := isText(o.output); !text {
			return printObject(o.Out, o.output, event)
		}
		return describeEvent(o.Streams, c, event)
	}
	filter := client.EventFilter{Type: o.typ, OldestFirst: o.oldest, PageSize: pageSize(o.limit)}
	var err error
	if filter.Since, filter.Until, err = o.span(); err != nil {
		return err
	}
	items, err := collect(c.Events(ctx, c.namespace, filter), o.limit)
	if err != nil {
		return err
	}
	t := &table{
		header: []string{"WEBHOOK-ID", "TYPE", "DELIVERED", "WAITING", "DEAD", "AGE"},
		wide:   []string{"ID", "SOURCE", "CONTENT-TYPE"},
	}
	for _, e := range items {
		waiting, delivered, dead := sumStates(e.States)
		t.add(eventTone(waiting, dead), e.WebhookID, e.Type, strconv.Itoa(delivered), strconv.Itoa(waiting),
			strconv.Itoa(dead), age(o.Now(), e.AcceptedAt), e.ID, e.Source, e.ContentType)
	}
	return o.show(client.EventList{Items: items}, t)
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

func sumStates(states map[client.DeliveryState]int) (waiting, delivered, dead int) {
	for state, n := range states {
		switch {
		case state.Waiting():
			waiting += n
		case state == client.StateDelivered:
			delivered += n
		case state == client.StateDiscarded: // the endpoint did not want it
		default:
			dead += n
		}
	}
	return waiting, delivered, dead
}

func (o *getOptions) listDeliveries(ctx context.Context, c *api, state client.DeliveryState) (client.DeliveryList, error) {
	filter := client.DeliveryFilter{Endpoint: o.endpoint, State: state, PageSize: pageSize(o.limit)}
	var err error
	if filter.Since, filter.Until, err = o.span(); err != nil {
		return client.DeliveryList{}, err
	}
	items, err := collect(c.Deliveries(ctx, c.namespace, filter), o.limit)
	return client.DeliveryList{Items: items}, err
}

func (o *getOptions) deliveries(ctx context.Context, c *api, _ []string) error {
	list, err := o.listDeliveries(ctx, c, client.DeliveryState(o.state))
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

func stateTone(s client.DeliveryState) tone {
	switch s {
	case client.StateDelivered:
		return good
	case client.StateDeadLettered, client.StateFilterError:
		return bad
	case client.StateHeld, client.StateRetrying:
		return warn
	}
	return plain
}

func (o *getOptions) deadLetters(ctx context.Context, c *api, _ []string) error {
	list, err := o.listDeliveries(ctx, c, client.StateDeadLettered)
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

func (o *getOptions) audit(ctx context.Context, c *api, _ []string) error {
	items, err := collect(c.Audit(ctx, c.namespace, client.AuditFilter{
		Action: o.action, Target: o.target, PageSize: pageSize(o.limit),
	}), o.limit)
	if err != nil {
		return err
	}
	t := &table{header: []string{"AT", "CALLER", "ACTION", "TARGET", "COUNT", "DETAIL"}}
	for _, a := range items {
		t.add(plain, a.At.UTC().Format(time.RFC3339), a.Caller, a.Action, a.Target, strconv.Itoa(a.Count), a.Detail)
	}
	return o.show(client.AuditList{Items: items}, t)
}
