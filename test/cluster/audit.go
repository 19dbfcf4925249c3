package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// Request is one request that the API server has answered.
type Request struct {
	// Verb is that of Kubernetes: get, list, watch, create, update, patch, delete, deletecollection.
	Verb string
	// User is such as admin or system:serviceaccount:shop:producer; UserAgent begins with the program's name.
	User, UserAgent string
	// Group is empty for the core group. Subresource is such as status, or empty.
	Group, Resource, Subresource string
	// Namespace and Name are empty where there is none, as in a list.
	Namespace, Name string
	// Code is the HTTP status of the answer.
	Code int
	// At is when it was answered.
	At     time.Time
	DryRun bool
}

// IsWrite reports whether the request was to change something that is stored, whatever the answer was. Reviews of tokens
// and rights are created, but stored nowhere.
func (r Request) IsWrite() bool {
	switch r.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return !r.DryRun && r.Group != "authentication.k8s.io" && r.Group != "authorization.k8s.io" && r.Subresource != "token"
	}
	return false
}

// String is the request without its time: "patch webhookendpoints/status shop/orders by admin: 200".
func (r Request) String() string {
	resource := r.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	return fmt.Sprintf("%s %s %s/%s by %s: %d", r.Verb, resource, r.Namespace, r.Name, r.User, r.Code)
}

func (c *Cluster) auditPath() string { return filepath.Join(c.Dir, "audit.log") }

// Mark is a moment in the record of requests.
type Mark int64

// Mark returns the present moment.
func (c *Cluster) Mark() (Mark, error) {
	info, err := os.Stat(c.auditPath())
	if err != nil {
		return 0, fmt.Errorf("reading the audit log: %w", err)
	}
	return Mark(info.Size()), nil
}

// Requests returns what the API server has answered since the mark (0 is its start), in the order in which it was
// answered. It holds no requests to what is no object, such as /healthz, and none that the API server made to itself.
func (c *Cluster) Requests(since Mark) ([]Request, error) {
	f, err := os.Open(c.auditPath())
	if err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.NewSectionReader(f, int64(since), 1<<40))
	if err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	return parseAudit(b)
}

// Writes is what of Requests changed something, or tried to.
func (c *Cluster) Writes(since Mark) ([]Request, error) {
	all, err := c.Requests(since)
	var writes []Request
	for _, r := range all {
		if r.IsWrite() {
			writes = append(writes, r)
		}
	}
	return writes, err
}

// Tally counts requests by what they have in common: Tally(requests, Request.String), or by a part of them.
func Tally(requests []Request, by func(Request) string) map[string]int {
	count := map[string]int{}
	for _, r := range requests {
		count[by(r)]++
	}
	return count
}

// auditEvent is what is read of an event of audit.k8s.io/v1.
type auditEvent struct {
	Verb           string    `json:"verb"`
	RequestURI     string    `json:"requestURI"`
	UserAgent      string    `json:"userAgent"`
	StageTimestamp time.Time `json:"stageTimestamp"`
	User           struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef *struct {
		APIGroup    string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

// parseAudit reads whole lines; the last one may be half-written.
func parseAudit(b []byte) ([]Request, error) {
	var requests []Request
	for line := range bytes.Lines(b) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		var e auditEvent
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("reading the audit log: %w", err)
		}
		if e.ObjectRef == nil {
			continue
		}
		requests = append(requests, Request{
			Verb: e.Verb, User: e.User.Username, UserAgent: e.UserAgent,
			Group: e.ObjectRef.APIGroup, Resource: e.ObjectRef.Resource, Subresource: e.ObjectRef.Subresource,
			Namespace: e.ObjectRef.Namespace, Name: e.ObjectRef.Name,
			Code: e.ResponseStatus.Code, At: e.StageTimestamp, DryRun: isDryRun(e.RequestURI),
		})
	}
	return requests, nil
}

func isDryRun(uri string) bool {
	u, err := url.ParseRequestURI(uri)
	return err == nil && u.Query().Has("dryRun")
}
