package client

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Problem is an answer that is not a success, as RFC 9457 has it.
type Problem struct {
	// Type is a URI that names the kind of problem, and stable; "about:blank" where the answer isn't Doorstep's own, such
	// as that of a proxy.
	Type string `json:"type"`
	// Title is the kind of problem in words.
	Title string `json:"title"`
	// Status is the HTTP status code.
	Status int `json:"status"`
	// Detail is one or two plain sentences: what is wrong and what to do.
	Detail string `json:"detail,omitempty"`
	// Field is the member, header or parameter at fault.
	Field string `json:"field,omitempty"`
	// Retryable says whether the same request may succeed later.
	Retryable bool `json:"retryable"`
	// RetryAfter is how long to wait before that; 0 if the answer doesn't say.
	RetryAfter time.Duration `json:"-"`
}

// Error is the problem as a sentence.
func (p *Problem) Error() string {
	text := p.Detail
	if text == "" {
		text = p.Title
	}
	if text == "" {
		text = "the server gave no reason"
	}
	if p.Field != "" {
		text = p.Field + ": " + text
	}
	return fmt.Sprintf("%s (%d)", text, p.Status)
}

// Kind is the last part of Type, such as "already-delivered"; empty where the answer isn't Doorstep's own.
func (p *Problem) Kind() string {
	i := strings.LastIndexByte(p.Type, '/')
	if i < 0 {
		return ""
	}
	return p.Type[i+1:]
}

// foreign is the Type of problems that are not Doorstep's own.
const foreign = "about:blank"

func problemOf(res *http.Response, body []byte) *Problem {
	var p Problem
	media, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if media != "application/problem+json" || json.Unmarshal(body, &p) != nil {
		p = Problem{
			Type: foreign, Title: http.StatusText(res.StatusCode),
			Detail:    "the server did not answer as a Doorstep API would",
			Retryable: res.StatusCode == http.StatusRequestTimeout || res.StatusCode == http.StatusTooManyRequests || res.StatusCode >= 500,
		}
	}
	p.Status, p.RetryAfter = res.StatusCode, retryAfter(res.Header.Get("Retry-After"))
	return &p
}

// retryAfter reads Retry-After (RFC 9110 §10.2.3): seconds, or a time.
func retryAfter(text string) time.Duration {
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if t, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(t))
	}
	return 0
}
