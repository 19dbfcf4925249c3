package plan

import (
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/retry"
)

func samplePlan() *Plan {
	at := time.Date(2026, 11, 30, 12, 0, 0, 123456789, time.UTC)
	return &Plan{
		Format:  Format,
		Version: 7,
		Pool: Pool{
			Source:      "doorstep-system/default",
			MaxInFlight: 512,
			Ingest:      Ingest{MaxPayloadBytes: 1 << 18, DedupeWindow: 24 * time.Hour},
			Egress:      Egress{Allow: []Network{{Prefix: netip.MustParsePrefix("127.0.0.0/8"), Ports: []uint16{80}}, {Prefix: netip.MustParsePrefix("fd00::/8"), Namespaces: []string{"shop"}}}, AllowHTTP: true},
			Retention:   Retention{Delivered: 72 * time.Hour, DeadLetters: 720 * time.Hour},
		},
		Endpoints: []Endpoint{{
			EndpointKey: EndpointKey{Namespace: "shop", Name: "orders"},
			Hash:        "abc", FirstSeen: at, URL: "https://hooks.example.com/orders?token=s3cret",
			EventTypes: []string{"order.*"},
			Signing:    Signing{Scheme: SchemeStandardWebhooks, Keys: []SigningKey{{Name: "k", Key: "whsec_not-a-real-one"}}},
			Timeout:    15 * time.Second, MaxInFlight: 16,
			Retry: retry.Policy{Backoff: retry.Backoff{Schedule: []time.Duration{time.Minute}}, MaxAge: time.Hour},
		}},
		Absent:     []Absence{{Endpoint: Endpoint{EndpointKey: EndpointKey{Namespace: "shop", Name: "gone"}, FirstSeen: at}}},
		Tombstones: []Tombstone{{EndpointKey: EndpointKey{Namespace: "shop", Name: "dead"}, DeletedAt: at}},
	}
}

func TestEncodeThenDecodeGivesThePlanBack(t *testing.T) {
	want := samplePlan()
	b, err := Encode(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("decoded %+v, want %+v", got, want)
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, tc := range []struct {
		name, in, want string
		newer          bool
	}{
		{name: "a newer format", in: `{"format":2,"version":1}`, want: "format 2", newer: true},
		{name: "a newer format of another shape", in: `{"format":9,"endpoints":{"a":1}}`, want: "reads up to 1", newer: true},
		{name: "no format", in: `{"version":1}`, want: "no format number"},
		{name: "format zero", in: `{"format":0}`, want: "no format number"},
		{name: "half a file", in: `{"format":1,"endpoints":[{"namespace":"a"`, want: "not JSON from byte"},
		{name: "nothing", in: ``, want: "not JSON from byte"},
		{name: "a member of another type", in: `{"format":1,"endpoints":[{"signing":{"keys":"whsec_abc"}}]}`, want: "signing.keys"},
		{name: "a prefix that is none", in: `{"format":1,"pool":{"egress":{"allow":[{"prefix":"whsec_abc"}]}}}`, want: "a member does not hold"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, err := Decode([]byte(tc.in))
			if err == nil {
				t.Fatalf("decoded %+v, want an error", p)
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %q does not say %q", err, tc.want)
			}
			if strings.Contains(err.Error(), "whsec_") {
				t.Errorf("error %q quotes a key", err)
			}
			if errors.Is(err, ErrNewerFormat) != tc.newer {
				t.Errorf("ErrNewerFormat is %t, want %t", !tc.newer, tc.newer)
			}
		})
	}
}

func TestDecodePassesOverUnknownMembers(t *testing.T) {
	p, err := Decode([]byte(`{"format":1,"version":3,"fromTheFuture":{"a":1}}`))
	if err != nil || p.Version != 3 {
		t.Errorf("got %+v, %v; want version 3", p, err)
	}
}

func TestEqualIgnoresOnlyTheVersion(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Plan)
		want   bool
	}{
		{"the same", func(*Plan) {}, true},
		{"another version", func(p *Plan) { p.Version++ }, true},
		{"another URL", func(p *Plan) { p.Endpoints[0].URL += "x" }, false},
		{"a problem", func(p *Plan) { p.Endpoints[0].Problem = &Problem{Reason: "KeyInvalid"} }, false},
		{"an absence that began", func(p *Plan) { p.Absent[0].Since = time.Unix(1, 0).UTC() }, false},
		{"one tombstone fewer", func(p *Plan) { p.Tombstones = nil }, false},
		{"another pool setting", func(p *Plan) { p.Pool.Suspend = true }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			other := samplePlan()
			tc.change(other)
			if got := Equal(samplePlan(), other); got != tc.want {
				t.Errorf("Equal is %t, want %t", got, tc.want)
			}
		})
	}
	if Equal(nil, nil) || Equal(samplePlan(), nil) {
		t.Error("a nil plan equals something")
	}
}
