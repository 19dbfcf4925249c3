package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/doorstep-dev/doorstep/client"
)

// sendOptions are the flags of send.
type sendOptions struct {
	Streams
	client                             clientFlags
	typ, id, source, data, contentType string
	attributes                         []string
	wait                               bool
	timeout                            time.Duration
	output                             string
}

func newSendCommand(s Streams) *cobra.Command {
	o := &sendOptions{Streams: s}
	cmd := &cobra.Command{
		Use:   "send --type TYPE [--data JSON|@FILE|-]",
		Short: "Post an event, and with --wait see it delivered",
		Long: "Post an event. With --wait, print each endpoint's outcome as it comes.\n\n" +
			"Exit codes with --wait: 0 delivered everywhere (or nobody takes the event), 2 dead-lettered somewhere,\n" +
			"3 timed out while a delivery still waits. Anything else that goes wrong: 1.",
		Example: `  doorstep send --type order.created --data '{"id":42}' --wait
  doorstep send --type order.created --attribute customer=cust_42 --attribute partitionkey=7
  doorstep send --type report.ready --data @report.xml --content-type text/xml --source /reports`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	o.client.add(cmd)
	addOutputFlag(cmd, &o.output)
	fl := cmd.Flags()
	fl.StringVar(&o.typ, "type", "", "the event's type, such as order.created")
	fl.StringVar(&o.data, "data", "{}", "the event's data: text, @FILE, or - for stdin")
	fl.StringVar(&o.id, "id", "", "the event's id; the same id again is a duplicate (default a random one)")
	fl.StringVar(&o.source, "source", "", "the event's source")
	fl.StringArrayVar(&o.attributes, "attribute", nil, "an attribute of the event, as name=value; may be repeated")
	fl.StringVar(&o.contentType, "content-type", "application/json",
		"of the data; application/cloudevents+json takes --data as the whole event; what is not JSON goes as a binary CloudEvent")
	fl.BoolVar(&o.wait, "wait", false, "wait until every delivery is made or dead-lettered")
	fl.DurationVar(&o.timeout, "timeout", time.Minute, "how long to wait")
	return cmd
}

func (o *sendOptions) run(ctx context.Context) error {
	if _, err := isText(o.output); err != nil {
		return err
	}
	return o.client.call(o.Streams, func(c *api) error {
		receipt, err := o.send(ctx, c)
		if err != nil {
			return err
		}
		if !o.wait {
			return o.printReceipt(c, receipt)
		}
		return o.follow(ctx, c, receipt)
	})
}

func (o *sendOptions) printReceipt(c *api, r client.Receipt) error {
	if text, _ := isText(o.output); !text {
		return printObject(o.Out, o.output, r)
	}
	_, err := fmt.Fprintln(o.Out, receiptLine(c, r))
	return err
}

func receiptLine(c *api, r client.Receipt) string {
	switch {
	case r.Duplicate:
		return fmt.Sprintf("event/%s was accepted before; nothing new is sent", r.WebhookID)
	case r.Endpoints == 0:
		return fmt.Sprintf("event/%s accepted; no endpoint in namespace %s takes it (another one: -n NAMESPACE)", r.WebhookID, printable(c.namespace))
	case r.Endpoints == 1:
		return fmt.Sprintf("event/%s accepted for 1 endpoint", r.WebhookID)
	}
	return fmt.Sprintf("event/%s accepted for %d endpoints", r.WebhookID, r.Endpoints)
}

// send posts the event. JSON goes in Doorstep's own envelope, around the data as it is.
func (o *sendOptions) send(ctx context.Context, c *api) (client.Receipt, error) {
	data, err := o.readData()
	if err != nil {
		return client.Receipt{}, err
	}
	media, _, err := mime.ParseMediaType(o.contentType)
	if err != nil {
		return client.Receipt{}, errors.New("--content-type is not a content type; give one such as text/xml")
	}
	header := http.Header{"Content-Type": {o.contentType}}
	if strings.HasPrefix(media, "application/cloudevents") {
		if o.typ != "" || o.id != "" || o.source != "" || len(o.attributes) > 0 {
			return client.Receipt{}, errors.New("with a CloudEvents content type the event's type, id, source and attributes are in --data")
		}
		return c.Post(ctx, c.namespace, header, data)
	}
	if o.typ == "" {
		return client.Receipt{}, errors.New("give the event's type: --type order.created")
	}
	if o.id == "" {
		o.id = client.NewID()
	}
	attributes, err := o.readAttributes()
	if err != nil {
		return client.Receipt{}, err
	}
	if media != "application/json" {
		o.binary(header, attributes)
		return c.Post(ctx, c.namespace, header, data)
	}
	if !json.Valid(data) {
		return client.Receipt{}, errors.New("--data is not JSON; quote it for the shell, or say what it is by --content-type")
	}
	return c.Send(ctx, c.namespace, client.Event{ID: o.id, Type: o.typ, Source: o.source, Attributes: attributes, Data: json.RawMessage(data)})
}

// attributeName is what the API takes for one. A name that isn't could make another
// header of a binary event.
var attributeName = regexp.MustCompile(`^[a-z0-9]{1,64}$`)

func (o *sendOptions) readAttributes() (map[string]string, error) {
	attributes := make(map[string]string, len(o.attributes))
	for _, a := range o.attributes {
		name, value, ok := strings.Cut(a, "=")
		if !ok || !attributeName.MatchString(name) {
			return nil, errors.New("--attribute takes name=value, with a name of 1 to 64 of a-z and 0-9")
		}
		switch name {
		case "id", "type", "source", "specversion":
			return nil, fmt.Errorf("--attribute %s would take the place of the event's own; there are --id, --type and --source", name)
		}
		if _, twice := attributes[name]; twice {
			return nil, fmt.Errorf("--attribute %s is given twice", name)
		}
		attributes[name] = value
	}
	return attributes, nil
}

func (o *sendOptions) readData() ([]byte, error) {
	switch {
	case o.data == "-":
		return readBounded(o.In)
	case strings.HasPrefix(o.data, "@"):
		f, err := os.Open(o.data[1:])
		if err != nil {
			return nil, fmt.Errorf("read --data: %w", err)
		}
		defer func() { _ = f.Close() }()
		return readBounded(f)
	}
	return []byte(o.data), nil
}

// maxDataBytes is more than any pool takes.
const maxDataBytes = 8 << 20

func readBounded(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxDataBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read --data: %w", err)
	}
	if len(b) > maxDataBytes {
		return nil, errors.New("--data is over 8 MiB; send a URL to the full data")
	}
	return b, nil
}

// binary makes it a CloudEvent in binary mode; values are percent-encoded as its HTTP binding says (3.1.3.2).
func (o *sendOptions) binary(header http.Header, attributes map[string]string) {
	for name, value := range attributes {
		header[http.CanonicalHeaderKey("ce-"+name)] = []string{headerValue(value)}
	}
	header["Ce-Specversion"] = []string{"1.0"}
	header["Ce-Id"] = []string{headerValue(o.id)}
	header["Ce-Type"] = []string{headerValue(o.typ)}
	header["Ce-Source"] = []string{headerValue(firstSet(o.source, "/doorstep/send"))}
}

func headerValue(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c > ' ' && c < 0x7f && c != '"' && c != '%' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// The event is asked for again after firstPoll, and then ever more rarely up to lastPoll.
const (
	firstPoll = 20 * time.Millisecond
	lastPoll  = time.Second
)

// follow prints each delivery's outcome once it has one.
func (o *sendOptions) follow(ctx context.Context, c *api, r client.Receipt) error {
	text, _ := isText(o.output)
	if text {
		if _, err := fmt.Fprintln(o.Out, receiptLine(c, r)); err != nil {
			return err
		}
	}
	waiting, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	told := make(map[string]bool)
	var event client.AcceptedEvent
	for poll := firstPoll; ; poll = min(2*poll, lastPoll) {
		seen, err := c.Get(waiting, c.namespace, r.WebhookID)
		var answer *client.Problem
		switch {
		case err == nil:
			event = seen
		case errors.As(err, &answer) && answer.Status == http.StatusForbidden:
			return fmt.Errorf("the event was accepted, but --wait can't tell its outcome: %s (%d)", printable(answer.Detail), answer.Status)
		case errors.As(err, &answer) && !answer.Retryable:
			return err
		}
		// Another failure is a Doorstep that is being restarted, perhaps: the wait goes on.
		if text {
			if err := o.tell(event, told); err != nil {
				return err
			}
		}
		if left, _, dead := sumStates(event.States); err == nil && left == 0 {
			return o.conclude(event, dead)
		}
		select {
		case <-time.After(poll):
		case <-waiting.Done():
			return o.timedOut(ctx, c, event, r.WebhookID)
		}
	}
}

// tell prints what has ended since the last time.
func (o *sendOptions) tell(e client.AcceptedEvent, told map[string]bool) error {
	for _, d := range e.Deliveries {
		if d.State.Waiting() || told[d.Endpoint] {
			continue
		}
		told[d.Endpoint] = true
		line := fmt.Sprintf("  %s %s after %s", d.Endpoint, outcomeWord(d), countAttempts(d))
		if o.colours() {
			line = string(stateTone(d.State)) + line + reset
		}
		if _, err := fmt.Fprintln(o.Out, line); err != nil {
			return err
		}
	}
	return nil
}

func outcomeWord(d client.Delivery) string {
	switch d.State {
	case client.StateDelivered:
		return "delivered"
	case client.StateDiscarded:
		return "discarded (its filter does not take the event)"
	case client.StateFilterError:
		return "kept (" + firstSet(printable(d.Reason), "its filter failed") + ")"
	}
	return "dead-lettered (" + firstSet(d.Reason, "no reason") + ")"
}

func countAttempts(d client.Delivery) string {
	words := strconv.Itoa(d.AttemptCount) + " attempts"
	if d.AttemptCount == 1 {
		words = "1 attempt"
	}
	if d.LastStatus != 0 {
		return words + ", last answer " + strconv.Itoa(d.LastStatus)
	}
	if cause := lastCause(d); cause != "" {
		words += ", the last failed with " + printable(cause)
	}
	return words
}

func (o *sendOptions) conclude(e client.AcceptedEvent, dead int) error {
	if text, _ := isText(o.output); !text {
		if err := printObject(o.Out, o.output, e); err != nil {
			return err
		}
	}
	if dead > 0 {
		return &exitError{code: exitDeadLettered}
	}
	return nil
}

// timedOut says what is known of a delivery that has not ended. Of an event that was never seen, nothing is.
func (o *sendOptions) timedOut(ctx context.Context, c *api, e client.AcceptedEvent, webhookID string) error {
	if ctx.Err() != nil {
		return &exitError{code: 1, message: "interrupted; the event was accepted and is delivered all the same"}
	}
	if text, _ := isText(o.output); !text && e.WebhookID != "" {
		if err := printObject(o.Out, o.output, e); err != nil {
			return err
		}
	}
	for _, d := range e.Deliveries {
		if d.State.Waiting() {
			fmt.Fprintf(o.Err, "  %s still %s\n", d.Endpoint, waitingWords(d))
		}
	}
	return &exitError{code: exitTimeout, message: fmt.Sprintf(
		"timed out after %s; Doorstep goes on. See: %s", o.timeout, c.command("explain", webhookID))}
}

// waitingWords say how a delivery waits: what holds it, or what its last attempt failed with.
func waitingWords(d client.Delivery) string {
	if d.State == client.StateHeld && d.Reason != "" {
		return "held: " + printable(d.Reason)
	}
	return string(d.State) + " after " + countAttempts(d)
}
