package pebble

import (
	"encoding/binary"
	"time"

	"github.com/doorstep-dev/doorstep/internal/queue"
)

// The kinds of records, by the first byte of their key.
const (
	kindClock       = 'c' // c                        → steady time last seen, last seq given
	kindVersion     = 'v' // v                        → format version that the records have
	kindEndpoint    = 'n' // n namespace 0 name       → endpointID
	kindNamespace   = 'm' // m namespace              → namespaceID
	kindLane        = 'l' // l endpointID             → queue.Lane
	kindEvent       = 'e' // e seq                    → envelope, endpointIDs
	kindPayload     = 'p' // p seq                    → body
	kindListed      = 's' // s namespaceID seq        → type
	kindIdentity    = 'i' // i namespace 0 webhookID  → seq, hash, time
	kindOrphan      = 'o' // o seq                    → time, key of an identity without its event
	kindFresh       = 'f' // f endpointID seq         → time of acceptance, size, order key
	kindRetrying    = 'r' // r endpointID seq         → delivery
	kindDue         = 't' // t endpointID due seq     → nothing
	kindLine        = 'k' // k endpointID key seq     → nothing: waits, and has an order key
	kindDelivered   = 'd' // d endpointID seq         → delivery
	kindDead        = 'x' // x endpointID seq         → delivery
	kindFilterError = 'q' // q endpointID seq         → delivery
	kindDiscarded   = 'g' // g endpointID seq         → delivery
	kindAttempt     = 'a' // a seq endpointID number  → attempt
	kindAudit       = 'u' // u namespaceID number     → audit record
	kindErased      = 'z' // z seq                    → nothing: its bytes are still on disk
	kindNaming      = 'w' // w namespace              → its uid, and those of former ones
)

// kindsOfDelivery are the places where a delivery may lie, the likely ones first.
var kindsOfDelivery = []byte{kindFresh, kindRetrying, kindDelivered, kindDead, kindFilterError, kindDiscarded}

// endpointID is the store's short number for an endpoint, from 1.
type endpointID uint32

// namespaceID is the store's short number for a namespace, from 1.
type namespaceID uint32

func keyClock() []byte { return []byte{kindClock} }

func keyEndpoint(namespace, name string) []byte {
	k := make([]byte, 0, 2+len(namespace)+len(name))
	k = append(k, kindEndpoint)
	k = append(k, namespace...)
	k = append(k, 0)
	return append(k, name...)
}

func keyNamespace(namespace string) []byte { return append([]byte{kindNamespace}, namespace...) }

func keyNaming(namespace string) []byte { return append([]byte{kindNaming}, namespace...) }

func keyVersion() []byte { return []byte{kindVersion} }

func appendIdentityKey(k []byte, namespace, webhookID string) []byte {
	k = append(k, kindIdentity)
	k = append(k, namespace...)
	k = append(k, 0)
	return append(k, webhookID...)
}

func appendSeqKey(k []byte, kind byte, seq queue.Seq) []byte {
	return binary.BigEndian.AppendUint64(append(k, kind), uint64(seq))
}

func appendEndpointKey(k []byte, kind byte, ep endpointID) []byte {
	return binary.BigEndian.AppendUint32(append(k, kind), uint32(ep))
}

func appendNamespaceKey(k []byte, kind byte, ns namespaceID) []byte {
	return binary.BigEndian.AppendUint32(append(k, kind), uint32(ns))
}

// appendListedKey is the key of an event among those of its namespace.
func appendListedKey(k []byte, ns namespaceID, seq queue.Seq) []byte {
	return binary.BigEndian.AppendUint64(appendNamespaceKey(k, kindListed, ns), uint64(seq))
}

func appendAuditKey(k []byte, ns namespaceID, number uint64) []byte {
	return binary.BigEndian.AppendUint64(appendNamespaceKey(k, kindAudit, ns), number)
}

// appendLineKey is the key of a waiting delivery among those with its order key.
func appendLineKey(k []byte, ep endpointID, key uint64, seq queue.Seq) []byte {
	k = binary.BigEndian.AppendUint64(appendEndpointKey(k, kindLine, ep), key)
	return binary.BigEndian.AppendUint64(k, uint64(seq))
}

func appendDeliveryKey(k []byte, kind byte, ep endpointID, seq queue.Seq) []byte {
	return binary.BigEndian.AppendUint64(appendEndpointKey(k, kind, ep), uint64(seq))
}

func appendDueKey(k []byte, ep endpointID, due time.Time, seq queue.Seq) []byte {
	k = binary.BigEndian.AppendUint64(appendEndpointKey(k, kindDue, ep), uint64(nanos(due)))
	return binary.BigEndian.AppendUint64(k, uint64(seq))
}

func appendAttemptKey(k []byte, seq queue.Seq, ep endpointID, number int) []byte {
	k = binary.BigEndian.AppendUint32(appendSeqKey(k, kindAttempt, seq), uint32(ep))
	return binary.BigEndian.AppendUint32(k, uint32(number)) //nolint:gosec // attempts are far below 2³²
}

// parseSeq reads the sequence number at the end of a key.
func parseSeq(k []byte) queue.Seq {
	return queue.Seq(binary.BigEndian.Uint64(k[len(k)-8:]))
}

func parseDueKey(k []byte) (time.Time, queue.Seq) {
	return fromNanos(int64(binary.BigEndian.Uint64(k[5:13]))), parseSeq(k) //nolint:gosec // written by nanos
}

// upper is the first key after all keys with this prefix.
func upper(prefix []byte) []byte {
	u := append([]byte(nil), prefix...)
	for i := len(u) - 1; i >= 0; i-- {
		u[i]++
		if u[i] != 0 {
			return u[:i+1]
		}
	}
	return nil
}

// nanos is the time as it is stored: nanoseconds since 1970, never negative, 0 for
// the zero time.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return max(t.UnixNano(), 1)
}

func fromNanos(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}
