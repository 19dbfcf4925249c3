package plan

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
)

// ErrNewerFormat is the error of Decode for a plan that a later release wrote.
var ErrNewerFormat = errors.New("the plan was written by a newer release")

// Encode gives the plan's wire form: one JSON object, ended by a newline. Equal
// plans give equal bytes. The bytes hold signing keys.
func Encode(p *Plan) ([]byte, error) {
	q := *p
	q.Format = Format
	b, err := json.Marshal(&q)
	if err != nil {
		return nil, fmt.Errorf("encode the plan: %w", err)
	}
	return append(b, '\n'), nil
}

// Decode reads what Encode wrote. A format newer than this build's is
// ErrNewerFormat; members that this build does not know are passed over, since
// a format gains members without changing what it means. An error never quotes
// the plan, which holds signing keys.
func Decode(b []byte) (*Plan, error) {
	var head struct {
		Format *int `json:"format"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return nil, notAPlan(err)
	}
	switch {
	case head.Format == nil || *head.Format < 1:
		return nil, errors.New("decode the plan: it has no format number, so it is not a plan that Doorstep wrote")
	case *head.Format > Format:
		return nil, fmt.Errorf("decode the plan: %w: it has format %d and this release reads up to %d; run that release, or a later one",
			ErrNewerFormat, *head.Format, Format)
	}
	p := new(Plan)
	if err := json.Unmarshal(b, p); err != nil {
		return nil, notAPlan(err)
	}
	return p, nil
}

// notAPlan says where a plan stops being one. The decoder's own words could hold
// a value, so only the place and the member's name are passed on.
func notAPlan(err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("decode the plan: not JSON from byte %d on", syntax.Offset)
	case errors.As(err, &kind):
		return fmt.Errorf("decode the plan: member %s, at byte %d, is of another type than it should be", kind.Field, kind.Offset)
	}
	return errors.New("decode the plan: a member does not hold what it should")
}

// ContentHash is the SHA-256 of everything but Version, in lower-case hex.
func (p *Plan) ContentHash() (string, error) {
	q := *p
	q.Version = 0
	b, err := Encode(&q)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// Equal says whether two plans hold the same, whatever their versions. A nil
// plan equals nothing.
func Equal(a, b *Plan) bool {
	if a == nil || b == nil {
		return false
	}
	if len(a.Endpoints) != len(b.Endpoints) || len(a.Absent) != len(b.Absent) || len(a.Tombstones) != len(b.Tombstones) {
		return false
	}
	x, y := *a, *b
	for _, p := range []*Plan{&x, &y} {
		p.Format, p.Version, p.Endpoints, p.Absent, p.Tombstones = Format, 0, nil, nil, nil
	}
	return same(&x, &y) && sameEach(a.Endpoints, b.Endpoints) && sameEach(a.Absent, b.Absent) && sameEach(a.Tombstones, b.Tombstones)
}

// Equal says whether two entries hold the same, whatever the versions in which they took that form.
func (e *Endpoint) Equal(o *Endpoint) bool {
	x, y := *e, *o
	x.Version, y.Version = 0, 0
	return same(&x, &y)
}

func sameEach[T any](a, b []T) bool {
	for i := range a {
		if !same(&a[i], &b[i]) {
			return false
		}
	}
	return true
}

// same says whether two parts of a plan have one wire form. Most that do are equal outright, which costs less to see
// than to write them down: plans with ten thousand endpoints are compared every second.
func same[T any](a, b *T) bool {
	if reflect.DeepEqual(a, b) {
		return true
	}
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
