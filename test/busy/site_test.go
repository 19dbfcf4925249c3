package busy

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/test/cluster"
	"github.com/doorstep-dev/doorstep/test/harness"
)

// binary is the doorstep binary under test.
var binary string

func TestMain(m *testing.M) {
	os.Exit(cluster.Main(func() int { return harness.RunWithBinary(m.Run, &binary) }))
}

const namespace = "shop"

// workerUser and managerUser are who they are to the API server.
var (
	workerUser  = "system:serviceaccount:" + cluster.System + ":" + v1alpha1.WorkerName(v1alpha1.DefaultPoolName)
	managerUser = "system:serviceaccount:" + cluster.System + ":doorstep-manager"
)

// site is an installation at work, with a receiver on this machine.
type site struct {
	*cluster.Cluster
	manager  *cluster.Manager
	pool     *cluster.Pool
	receiver *receiver
	token    string // of a ServiceAccount that may post events
}

// receiver answers 500 below /fail/, and everywhere else while it is broken.
type receiver struct {
	*httptest.Server
	broken atomic.Bool
	took   atomic.Int64
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		if r.broken.Load() || strings.HasPrefix(q.URL.Path, "/fail/") {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		r.took.Add(1)
	}))
	t.Cleanup(r.Close)
	return r
}

const manifests = `apiVersion: doorstep.dev/v1alpha1
kind: DeliveryPool
metadata: {name: default, namespace: doorstep-system}
spec:
  egress: {allowHTTP: true, allow: [{cidr: 127.0.0.0/8}]}
`

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{Cluster: cluster.Start(t), receiver: newReceiver(t)}
	ctx := t.Context()
	if err := s.InstallDoorstep(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.EnsureNamespace(ctx, namespace, nil); err != nil {
		t.Fatal(err)
	}
	s.token = s.Producer(t, namespace)
	if err := s.Apply(ctx, manifests); err != nil {
		t.Fatal(err)
	}
	s.pool = s.RunPool(t, binary, cluster.DefaultPool)
	s.manager = s.StartManager(t, binary, "--default-pool=none")
	cluster.LogsOfAFailure(t, func() *cluster.Manager { return s.manager }, s.pool)
	s.pool.WaitReady(t, time.Minute)
	return s
}

// load posts events of the types in turn, at a rate for a time, and fails the test unless each one is accepted.
func (s *site) load(t *testing.T, run string, types []string, rate float64, duration time.Duration) {
	t.Helper()
	result, err := harness.Load{
		Addr: s.pool.Ingest(), Path: "/v1/namespaces/" + namespace + "/events", Key: s.token, Run: run,
		Types: types, Size: 512, Conns: 4, Rate: rate, Count: 1 << 20, Duration: duration,
	}.Do(t.Context())
	if err != nil {
		t.Error(err)
		return
	}
	if result.Failed > 0 || result.Refused > 0 || result.Accepted < int64(rate*duration.Seconds()/2) {
		t.Errorf("%s: %d events were accepted, %d refused, %d failed: %s", run, result.Accepted, result.Refused, result.Failed, result.FirstError)
	}
}

// noErrors fails the test for each line of error level that manager or worker have logged.
func (s *site) noErrors(t *testing.T) {
	t.Helper()
	for who, log := range map[string]*cluster.Log{"manager": s.manager.Log, "worker": s.pool.Log} {
		if !strings.Contains(log.String(), "level=INFO") {
			t.Fatalf("the %s's log has no levels to look at:\n%s", who, log.Last())
		}
		for _, line := range log.Lines("level=ERROR") {
			t.Errorf("the %s logged: %s", who, line)
		}
	}
}

// statusWrites are what a user wrote, or tried to, in statuses of Doorstep's kinds since a mark.
func (s *site) statusWrites(t *testing.T, user string, since cluster.Mark) []cluster.Request {
	t.Helper()
	all, err := s.Writes(since)
	if err != nil {
		t.Fatal(err)
	}
	var mine []cluster.Request
	for _, w := range all {
		if w.User == user && w.Group == v1alpha1.GroupName && w.Subresource == "status" {
			mine = append(mine, w)
		}
	}
	return mine
}

func (s *site) mark(t *testing.T) cluster.Mark {
	t.Helper()
	m, err := s.Mark()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func typeOf(i int) string { return fmt.Sprintf("t%04d", i) }
