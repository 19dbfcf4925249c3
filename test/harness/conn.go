package harness

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"strconv"
	"strings"
	"time"
)

// requestTimeout bounds one request of a Conn.
const requestTimeout = 30 * time.Second

// Conn is a keep-alive HTTP/1.1 connection that posts to one path. It costs a third
// of what net/http's client does, so that a load generator on the same machine takes
// little from what it measures. It is for one goroutine.
type Conn struct {
	addr string
	head []byte
	c    net.Conn
	r    *bufio.Reader
	buf  []byte
}

// NewConn prepares posts of JSON to path on addr; it dials with the first of them,
// and again after an error. A key that isn't empty is sent as a bearer token.
func NewConn(addr, path, key string) *Conn {
	var b strings.Builder
	fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n", path, addr)
	if key != "" {
		fmt.Fprintf(&b, "Authorization: Bearer %s\r\n", key)
	}
	b.WriteString("Content-Length: ")
	return &Conn{addr: addr, head: []byte(b.String())}
}

// Answer is what a server said.
type Answer struct {
	Status int
	// RetryAfter is the Retry-After header in seconds, 0 without one.
	RetryAfter time.Duration
}

// Post sends body and reads the answer, leaving its body out. After an error nothing
// is known of what the server did.
func (c *Conn) Post(body []byte) (Answer, error) {
	if c.c == nil {
		conn, err := net.DialTimeout("tcp", c.addr, requestTimeout)
		if err != nil {
			return Answer{}, err
		}
		c.c, c.r = conn, bufio.NewReaderSize(conn, 4096)
	}
	a, err := c.post(body)
	if err != nil {
		c.Close()
	}
	return a, err
}

// Close closes the connection; the next Post dials anew.
func (c *Conn) Close() {
	if c.c != nil {
		_ = c.c.Close() // nothing was promised about it
		c.c = nil
	}
}

func (c *Conn) post(body []byte) (Answer, error) {
	if err := c.c.SetDeadline(time.Now().Add(requestTimeout)); err != nil {
		return Answer{}, err
	}
	c.buf = append(c.buf[:0], c.head...)
	c.buf = strconv.AppendInt(c.buf, int64(len(body)), 10)
	c.buf = append(c.buf, "\r\n\r\n"...)
	c.buf = append(c.buf, body...)
	if _, err := c.c.Write(c.buf); err != nil {
		return Answer{}, err
	}
	return c.answer()
}

var errMalformed = errors.New("the answer is not HTTP/1.1 as this client knows it")

func (c *Conn) answer() (Answer, error) {
	line, err := c.r.ReadSlice('\n')
	if err != nil {
		return Answer{}, err
	}
	if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.1 ")) {
		return Answer{}, errMalformed
	}
	var a Answer
	if a.Status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return Answer{}, errMalformed
	}
	length, closing := -1, false
	for {
		if line, err = c.r.ReadSlice('\n'); err != nil {
			return Answer{}, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.Atoi(string(value)); err != nil {
				return Answer{}, errMalformed
			}
		case bytes.EqualFold(name, []byte("Retry-After")):
			if sec, err := strconv.Atoi(string(value)); err == nil {
				a.RetryAfter = time.Duration(sec) * time.Second
			}
		case bytes.EqualFold(name, []byte("Connection")):
			closing = bytes.EqualFold(value, []byte("close"))
		}
	}
	if err := c.skip(length); err != nil {
		return Answer{}, err
	}
	if closing {
		c.Close()
	}
	return a, nil
}

// skip reads past the answer's body: length bytes, or chunks when there is no length.
func (c *Conn) skip(length int) error {
	if length >= 0 {
		_, err := c.r.Discard(length)
		return err
	}
	if _, err := io.Copy(io.Discard, httputil.NewChunkedReader(c.r)); err != nil {
		return err
	}
	_, err := c.r.ReadSlice('\n') // the empty line after the last chunk
	return err
}
