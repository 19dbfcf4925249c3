package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
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
	target *url.URL
	client *http.Client
}

func runRelay(context.Context) error {
	key, err := harness.ParseKey(os.Getenv(envKey))
	if err != nil {
		return err
	}
	target, err := url.Parse(os.Getenv(envTarget))
	if err != nil {
		return err
	}
	return serve(&relay{key: key, target: target, client: &http.Client{
		Timeout:   15 * time.Second,
		Transport: &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true},
	}})
}

// ServeHTTP takes one event and forwards it.
func (r *relay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.ContentLength < 0 || req.ContentLength > 1<<20 {
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		return
	}
	body := make([]byte, req.ContentLength)
	if _, err := io.ReadFull(req.Body, body); err != nil {
		w.WriteHeader(http.StatusBadRequest)
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
	ts := strconv.FormatInt(time.Now().Unix(), 10)
	req := &http.Request{
		Method: http.MethodPost, URL: r.target, Host: r.target.Host,
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
		Header: http.Header{
			"Content-Type":      {"application/json"},
			"User-Agent":        {"relay"},
			"Webhook-Id":        {id},
			"Webhook-Timestamp": {ts},
			"Webhook-Signature": {r.key.Sign(id, ts, body)},
		},
	}
	resp, err := r.client.Do(req.WithContext(ctx))
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
