package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/doorstep-dev/doorstep/internal/compile"
	"github.com/doorstep-dev/doorstep/internal/ingest"
)

var keyOfText = regexp.MustCompile(`dsk_[a-z0-9]+_[0-9a-f]{64}`)

func TestNewAPIKeys(t *testing.T) {
	w := newWorld(t)
	for _, row := range []struct {
		name string
		args []string
		want string // after the line with the hash
	}{
		{"nothing but an id", nil, "namespaces: [\"default\"]\nverbs: [\"send\"]\n"},
		{"namespaces and verbs", []string{"-n", "shop", "--namespace", "bank", "--verb", "read,replay"},
			"namespaces: [\"shop\", \"bank\"]\nverbs: [\"read\", \"replay\"]\n"},
		{"everything", []string{"-n", "*", "--verb", "*"}, "namespaces: [\"*\"]\nverbs: [\"*\"]\n"},
		{"an endpoint", []string{"--endpoint", "orders"}, "namespaces: [\"default\"]\nverbs: [\"read\"]\nendpoints: [\"orders\"]\n"},
		{"a namespace that YAML takes for a truth", []string{"-n", "no"}, "namespaces: [\"no\"]\nverbs: [\"send\"]\n"},
		{"days", []string{"--expires", "90d"}, "namespaces: [\"default\"]\nverbs: [\"send\"]\nexpiresAt: \"2027-02-28T12:01:30Z\"\n"},
		{"a time", []string{"--expires", "2027-01-31T01:00:00+01:00"}, "namespaces: [\"default\"]\nverbs: [\"send\"]\nexpiresAt: \"2027-01-31T00:00:00Z\"\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w.t = t
			r := w.want(0, append([]string{"apikey", "new", "--id", "ci"}, row.args...)...)
			key := keyOfText.FindString(r.err)
			if !strings.HasPrefix(r.err, "The key, shown this once") || key == "" || strings.Contains(r.out, key) {
				t.Fatalf("stdout %q, stderr %q", r.out, r.err)
			}
			head, value, _ := strings.Cut(strings.ReplaceAll(r.out, "\n    ", "\n"), "\n")
			hash, rest, _ := strings.Cut(value, "\n")
			if head != "  ci: |" || rest != row.want || !regexp.MustCompile(`^sha256: "[0-9a-f]{64}"$`).MatchString(hash) {
				t.Errorf("the entry is\n%s\nwant\n%s", r.out, row.want)
			}
			if err := compile.CheckAPIKey("ci", value); err != nil {
				t.Errorf("the entry is refused: %v", err)
			}
		})
	}
}

func TestNewAPIKeyInAFile(t *testing.T) {
	w, file := newWorld(t), filepath.Join(t.TempDir(), "key")
	r := w.want(0, "apikey", "new", "--id", "ci", "--key-file", file)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ingest.ParseAPIKey(strings.TrimSpace(string(b))); err != nil || keyOfText.MatchString(r.out+r.err) {
		t.Errorf("the file holds no key (%v), or it is shown: %s%s", err, r.out, r.err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("the file is %v (%v), want mode 0600", info.Mode(), err)
	}
	if r := w.want(1, "apikey", "new", "--id", "ci", "--key-file", file); r.out != "" || !strings.Contains(r.err, "the file exists and is left as it is") {
		t.Errorf("stdout %q, stderr %q", r.out, r.err)
	}
	if after, err := os.ReadFile(file); err != nil || !bytes.Equal(after, b) {
		t.Errorf("the file was changed (%v)", err)
	}
}

func TestNewAPIKeysThatAreRefused(t *testing.T) {
	w := newWorld(t)
	for _, row := range []struct {
		args []string
		err  string
	}{
		{[]string{"apikey"}, "say what to do: apikey new"},
		{[]string{"apikey", "new"}, "give the key's id: --id shop"},
		{[]string{"apikey", "new", "--id", "My_Key"}, "--id My_Key: an API key has the form"},
		{[]string{"apikey", "new", "--id", "standalone"}, "is that of a data folder's own key"},
		{[]string{"apikey", "new", "--id", "ci", "-n", "Shop"}, "namespaces[0] is not the name of a namespace"},
		{[]string{"apikey", "new", "--id", "ci", "--verb", "sing"}, "verbs must be of send, read"},
		{[]string{"apikey", "new", "--id", "ci", "--endpoint", "a", "--verb", "send"}, "bound to endpoints can't have the verb send"},
		{[]string{"apikey", "new", "--id", "ci", "--expires", "soon"}, "--expires must be a time such as"},
		{[]string{"apikey", "new", "--id", "ci", "--expires", "-3h"}, "--expires must be a time such as"},
		{[]string{"apikey", "new", "--id", "ci", "--expires", "2026-01-31T00:00:00Z"}, "--expires is in the past"},
	} {
		if r := w.want(1, row.args...); r.out != "" || !strings.Contains(r.err, row.err) || keyOfText.MatchString(r.err) {
			t.Errorf("%v: stdout %q, stderr %q, want %q", row.args, r.out, r.err, row.err)
		}
	}
}
