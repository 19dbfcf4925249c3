package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/doorstep-dev/doorstep/test/harness"
)

// relay is the limit that a worker is held against: Go's HTTP server, a signature,
// Go's HTTP client, and nothing kept. It answers 202 when the receiver has answered,
// so that it neither queues nor drops. It does the network half of a delivery with
// the least around it: the id is cut from the body without parsing, and nothing is
// logged, routed, authorised or counted. A worker can't be faster with the same
// server and client; how near it comes is the price of durability.
type relay struct {
	key    harness.Key
	target string
	client *http.Client
}

func runRelay(context.Context) error {
	key, err := harness.ParseKey(os.Getenv(envKey))
	if err != nil {
		return err
	}
	return serve(&relay{key: key, target: os.Getenv(envTarget), client: &http.Client{
		Timeout:   15 * time.Second,
		Transport: &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true},
	}})
}

// ServeHTTP takes one event and forwards it.
func (r *relay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, 1<<20))
	if err != nil {
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		return
	}
	id, err := eventID(body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if err := r.forward(req.Context(), id, body); err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	w.WriteHeader(http.StatusAccepted)
}

// eventID cuts the id out of an event of this benchmark, which begins with it.
func eventID(body []byte) (string, error) {
	rest, ok := bytes.CutPrefix(body, []byte(`{"id":"`))
	id, _, closed := bytes.Cut(rest, []byte(`"`))
	if !ok || !closed {
		return "", errors.New("not an event of this benchmark")
	}
	return string(id), nil
}

func (r *relay) forward(ctx context.Context, id string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.target, bytes.NewReader(body))
	if err != nil {
		return err
	}
	ts := strconv.FormatInt(time.Now().Unix(), 10)
	req.Header = http.Header{
		"Content-Type":      {"application/json"},
		"User-Agent":        {"relay"},
		"Webhook-Id":        {id},
		"Webhook-Timestamp": {ts},
		"Webhook-Signature": {r.key.Sign(id, ts, body)},
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)); err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return errors.New("answer " + strconv.Itoa(resp.StatusCode))
	}
	return nil
}
