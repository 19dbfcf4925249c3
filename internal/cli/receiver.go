package cli

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/sign"
)

// receiver is what an application should do with webhooks, in the order that matters: read the raw bytes, verify them,
// look whether the id was done before, do the work durably, and only then answer 2xx.
type receiver struct {
	keys   keySource
	verify verifier
	now    func() time.Time

	failRate   float64
	failStatus int
	failFile   string

	mu     sync.Mutex // guards what follows, and makes one event be worked on at a time
	out    io.Writer
	random *rand.Rand
	seen   map[string]bool // webhook-ids that were done; it grows with them, which is enough for a sample
	log    *os.File
}

// verifier checks one request.
type verifier func(keys []sign.Key, h http.Header, body []byte, now time.Time) error

// verifiers are those of each scheme.
var verifiers = map[string]verifier{
	plan.SchemeStandardWebhooks: func(keys []sign.Key, h http.Header, body []byte, now time.Time) error {
		return sign.Verify(keys, h.Get("Webhook-Id"), h.Get("Webhook-Timestamp"), h.Get("Webhook-Signature"), body, now, sign.DefaultTolerance)
	},
	plan.SchemeGitHub: func(keys []sign.Key, h http.Header, body []byte, _ time.Time) error {
		return sign.VerifyGitHub(keys, h.Get("X-Hub-Signature-256"), body)
	},
	plan.SchemeStripe: func(keys []sign.Key, h http.Header, body []byte, now time.Time) error {
		return sign.VerifyStripe(keys, h.Get("Stripe-Signature"), body, now, sign.DefaultTolerance)
	},
}

// received is a line of the receiver's log.
type received struct {
	ID      string    `json:"id"`
	At      time.Time `json:"at"`
	Type    string    `json:"type,omitempty"`
	Attempt string    `json:"attempt,omitempty"`
	Bytes   int       `json:"bytes"`
	SHA256  string    `json:"sha256"`
}

// maxReceivedBytes is more than Doorstep sends.
const maxReceivedBytes = 2 << 20

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if q.Method != http.MethodPost {
		http.Error(w, "webhooks are POSTed here", http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, q.Body, maxReceivedBytes))
	if err != nil {
		http.Error(w, "the body can't be read", http.StatusBadRequest)
		return
	}
	keys, err := r.keys()
	if err != nil {
		// Not the sender's fault: it is to come again.
		r.print("no key: %v", err)
		http.Error(w, "the receiver has no key", http.StatusServiceUnavailable)
		return
	}
	h := q.Header
	id := h.Get("Webhook-Id")
	if err := r.verify(keys, h, body, r.now()); err != nil {
		r.print("REFUSED  %s: %v", printable(id), err)
		http.Error(w, "the signature does not hold", http.StatusUnauthorized)
		return
	}
	status := r.handle(received{
		ID: id, At: r.now().UTC(), Type: eventType(h, body), Attempt: h.Get("Doorstep-Attempt"), Bytes: len(body), SHA256: hash(body),
	})
	w.WriteHeader(status)
}

// handle does the work of one verified event and gives the answer's status code.
func (r *receiver) handle(e received) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen[e.ID] {
		r.printLocked("duplicate  %s", printable(e.ID))
		return http.StatusOK
	}
	if status := r.failure(); status != 0 {
		r.printLocked("failing %d  %s  attempt %s", status, printable(e.ID), printable(e.Attempt))
		return status
	}
	if err := r.append(e); err != nil {
		r.printLocked("can't write the log: %v", err)
		return http.StatusInternalServerError
	}
	r.seen[e.ID] = true
	r.printLocked("verified  %s  %s  attempt %s  %d bytes", printable(e.ID), printable(e.Type), printable(e.Attempt), e.Bytes)
	return http.StatusNoContent
}

// failure is the status code to fail with, 0 to go on.
func (r *receiver) failure() int {
	if r.failFile != "" {
		if b, err := os.ReadFile(r.failFile); err == nil {
			status, err := strconv.Atoi(strings.TrimSpace(string(b)))
			if err != nil || status < 200 || status > 599 {
				return http.StatusInternalServerError
			}
			return status
		}
	}
	if r.failRate > 0 && r.random.Float64() < r.failRate {
		return r.failStatus
	}
	return 0
}

// openLog reads which ids were done before, and goes on at the file's end. A last line that a crash cut off was never
// answered 2xx: it is cut away.
func (r *receiver) openLog(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	var end int64
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadBytes('\n')
		var e received
		if err != nil || json.Unmarshal(line, &e) != nil {
			break
		}
		r.seen[e.ID] = true
		end += int64(len(line))
	}
	if err := f.Truncate(end); err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	if _, err := f.Seek(end, io.SeekStart); err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	r.log = f
	return nil
}

func (r *receiver) append(e received) error {
	if r.log == nil {
		return nil
	}
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if _, err := r.log.Write(append(line, '\n')); err != nil {
		return err
	}
	return r.log.Sync()
}

func (r *receiver) print(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.printLocked(format, args...)
}

func (r *receiver) printLocked(format string, args ...any) {
	_, _ = fmt.Fprintf(r.out, r.now().Format("15:04:05")+"  "+format+"\n", args...) // a closed pipe is no reason to fail the sender
}

// eventType is for the eye: the header of a binary CloudEvent, or the member of a JSON body.
func eventType(h http.Header, body []byte) string {
	if t := h.Get("Ce-Type"); t != "" {
		return t
	}
	var e struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(body, &e) != nil || e.Type == "" {
		return "-"
	}
	return e.Type
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
