// Package client calls the HTTP API of Doorstep: it sends events, looks up what became of them, and takes a person's
// actions. The doorstep command uses it too.
//
//	c, err := client.New("http://127.0.0.1:8080", client.Options{Key: key})
//	…
//	receipt, err := c.Send(ctx, "shop", client.Event{ID: "evt_42", Type: "order.created", Data: order})
//
// It promises that an event is tried again only where that can help (network errors, 408, 429 and 5xx, never 400, 401,
// 403, 409 or 413), each time with the same bytes and so under the same id, that Retry-After is honoured, and that every
// answer which is not a success is a *Problem.
//
// It never follows redirects (they would carry the key, or the event, to somewhere nobody named), never puts the key
// into an error, and never repeats by itself what is not safe to do twice: replays and tests.
package client
