package ingest

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// Bodies are read into memory that grows with what came, never with what a header claims: a connection that promises
// 256 KiB and sends nothing costs firstRead.
const firstRead = 16 << 10

// budget bounds the bytes of all request bodies that are in memory at once.
type budget struct {
	used atomic.Int64
	max  int64
}

func (b *budget) take(n int) bool {
	if b.used.Add(int64(n)) <= b.max {
		return true
	}
	b.used.Add(-int64(n))
	return false
}

func (b *budget) give(n int) { b.used.Add(-int64(n)) }

var errBusy = unavailable("overloaded", "Too many request bodies are being read at once; nothing was stored. Try again.",
	time.Second)

// readBody reads a body of at most limit bytes. held is what it took of the budget, which the caller gives back when
// it is done with the bytes, also after a problem.
func (s *Server) readBody(r *http.Request, limit int) (body []byte, held int, problem *Problem) {
	if problem := refuseEncoding(r.Header); problem != nil {
		return nil, 0, problem
	}
	if r.ContentLength > int64(limit) {
		return nil, 0, tooLarge(limit)
	}
	// One byte more than the limit, so that a body of unknown length is seen to be over it.
	most, first := limit+1, firstRead
	if r.ContentLength >= 0 {
		most = int(r.ContentLength)
	}
	first = min(first, most)
	if !s.bodies.take(first) {
		return nil, 0, errBusy
	}
	held, body = first, make([]byte, 0, first)
	for {
		if len(body) == cap(body) {
			if len(body) == most {
				break
			}
			grown := min(2*cap(body), most)
			if !s.bodies.take(grown - cap(body)) {
				return nil, held, errBusy
			}
			held += grown - cap(body)
			body = append(make([]byte, 0, grown), body...)
		}
		n, err := r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, held, bodyProblem(err)
		}
	}
	if len(body) > limit {
		return nil, held, tooLarge(limit)
	}
	return body, held, nil
}

// refuseEncoding takes only bodies that are not compressed: what is stored, hashed, signed and sent are the bytes
// that came, and nothing here inflates (cases IN7, IN8).
func refuseEncoding(h http.Header) *Problem {
	values, ok := h["Content-Encoding"]
	if !ok {
		return nil
	}
	for _, v := range values {
		if v = strings.TrimSpace(v); v != "" && !strings.EqualFold(v, "identity") {
			p := unsupportedMedia("Content-Encoding", "Compressed bodies are not taken; send the body as it is, "+
				"without Content-Encoding.")
			p.closes = true
			return p
		}
	}
	return nil
}

func bodyProblem(err error) *Problem {
	p := badRequest("body", "The body broke off before its end, or its chunks are malformed.")
	if errors.Is(err, os.ErrDeadlineExceeded) {
		p = newProblem(http.StatusRequestTimeout, "slow-body", "body", "The body did not arrive in time.")
		p.Retryable = true
	}
	p.closes = true
	return p
}
