package standalone

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/doorstep-dev/doorstep/internal/deliver/egress"
	"github.com/doorstep-dev/doorstep/internal/ingest"
	"github.com/doorstep-dev/doorstep/internal/manifest"
)

// check refuses options that don't go together, naming the flag and the way out.
func (p *process) check() error {
	if p.Dir == "" && p.ForwardTo == "" {
		return errors.New("nothing to run: give a folder of manifests with -f, or --dev --forward-to URL")
	}
	if p.ForwardTo != "" {
		if !p.Dev {
			return errors.New("--forward-to needs --dev: it replaces the address of every endpoint")
		}
		if _, err := egress.CheckURL(p.ForwardTo); err != nil {
			return fmt.Errorf("--forward-to: %w", err)
		}
	}
	if p.Data == "" {
		return errors.New("--data is needed: the folder that holds the queue")
	}
	if p.Dir != "" {
		if _, err := os.Stat(p.Dir); err != nil {
			return fmt.Errorf("-f %s: %w", p.Dir, errors.Unwrap(err))
		}
		if err := manifest.CheckRoot(p.Dir); err != nil {
			return fmt.Errorf("-f: %w", err)
		}
		if sameFolder(p.Dir, p.Data) {
			return fmt.Errorf("-f and --data are the same folder, %s: give the queue a folder of its own with --data; it may lie within that of the manifests", p.Data)
		}
	}
	return checkLoopback(p.Listen)
}

func checkLoopback(listen string) error {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return fmt.Errorf("--listen %s: it must be host:port, such as 127.0.0.1:8080", listen)
	}
	if host == "localhost" {
		return nil
	}
	if a, err := netip.ParseAddr(host); err != nil || !a.IsLoopback() {
		return fmt.Errorf("--listen %s: standalone listens on loopback addresses only, such as 127.0.0.1:8080", listen)
	}
	return nil
}

// sameFolder is false as long as one of the two does not exist.
func sameFolder(a, b string) bool {
	ia, err := os.Stat(a)
	if err != nil {
		return false
	}
	ib, err := os.Stat(b)
	return err == nil && os.SameFile(ia, ib)
}

// makePrivateFolder makes the data folder, or takes one that is empty or that Doorstep
// has made before.
func makePrivateFolder(dir string) error {
	if err := notForeign(dir); err != nil {
		return err
	}
	if err := manifest.MakeFolder(filepath.Clean(dir)); err != nil {
		return fmt.Errorf("--data: %w", err)
	}
	return nil
}

// notForeign refuses a folder that holds other things and none of ours: a mistyped
// --data must not spread files over it.
func notForeign(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil //nolint:nilerr // whether it can be made or used shows next, with better words
	}
	other := ""
	for _, e := range entries {
		switch e.Name() {
		case queueFolder, manifest.PlanFile, apiKeyName, "secrets":
			return nil
		case "lost+found":
		default:
			other = e.Name()
		}
	}
	if other != "" {
		return fmt.Errorf("--data %s: the folder holds %q and nothing of Doorstep's; it is left untouched: choose an empty folder or one that doesn't exist yet", dir, other)
	}
	return nil
}

const apiKeyName = "api-key"

// APIKeyFile is where a data folder's API key is kept.
func APIKeyFile(data string) string { return filepath.Join(data, apiKeyName) }

// authorizer lets everybody on this machine in with --dev; else whoever has the API
// key, which is made once and kept in the data folder, or one of the DeliveryPool's keys.
func (p *process) authorizer() (ingest.Authorizer, error) {
	if p.Dev {
		return ingest.Loopback(), nil
	}
	file := APIKeyFile(p.Data)
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		text, key, err := ingest.NewAPIKey("standalone")
		if err != nil {
			return nil, err
		}
		if err := manifest.CreateFile(file, []byte(text+"\n")); err != nil {
			return nil, fmt.Errorf("write the API key: %w", err)
		}
		return ingest.PlanKeys(p.engine.Plan, key), nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the API key: %w", err)
	}
	key, err := ingest.ParseAPIKey(strings.TrimSpace(string(b)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w; remove the file to have a new one made", file, err)
	}
	return ingest.PlanKeys(p.engine.Plan, key), nil
}

// greet tells where everything is.
func (p *process) greet() {
	addr := p.listener.Addr().String()
	_, _ = fmt.Fprintf(p.Out, "Doorstep takes events at http://%s/v1/namespaces/{namespace}/events\n", addr)
	if !p.Dev {
		_, _ = fmt.Fprintf(p.Out, "  with the API key in %s (Authorization: Bearer …)\n", APIKeyFile(p.Data))
	}
	waiting, lost := p.engine.Waiting()
	if waiting > 0 {
		_, _ = fmt.Fprintf(p.Out, "  %d deliveries wait from before, %d of them for endpoints that aren't in the manifests\n", waiting, lost)
	}
	if p.ForwardTo != "" {
		_, _ = fmt.Fprintln(p.Out, "  and forwards everything to the --forward-to address")
	}
}
