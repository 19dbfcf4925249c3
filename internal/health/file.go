package health

import (
	"bytes"
	"compress/gzip"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/doorstep-dev/doorstep/internal/plan"
)

// fileVersion is that of the file's form: a header, then the endpoints one by one.
const fileVersion = 2

type header struct{ Version int }

type entry struct {
	Key    plan.EndpointKey
	Record *record
}

// Save writes the Book to a file, all or nothing; nothing when nothing has changed since
// the last time. The Book is locked for one endpoint at a time: attempts, and the store
// that tells of events, must not wait for thousands of them.
func (b *Book) Save(path string) (err error) {
	b.mu.Lock()
	if !b.changed {
		b.mu.Unlock()
		return nil
	}
	fresh := b.fresh
	b.changed, b.fresh = false, false
	keys := slices.Collect(maps.Keys(b.records))
	b.mu.Unlock()
	defer func() {
		if err != nil {
			b.mu.Lock()
			b.changed, b.fresh = true, b.fresh || fresh
			b.mu.Unlock()
		}
	}()

	var text bytes.Buffer
	z := gzip.NewWriter(&text)
	if err := errors.Join(b.encode(gob.NewEncoder(z), keys), z.Close()); err != nil {
		return fmt.Errorf("encode the health of endpoints: %w", err)
	}
	return replace(path, text.Bytes())
}

// encode writes the records of some endpoints, those that are still there.
func (b *Book) encode(to *gob.Encoder, keys []plan.EndpointKey) error {
	if err := to.Encode(header{fileVersion}); err != nil {
		return err
	}
	for _, k := range keys {
		b.mu.Lock()
		r := b.records[k]
		if r == nil {
			b.mu.Unlock()
			continue
		}
		// A failure is replaced, never written into, so that the copy may share it.
		copied := *r
		b.mu.Unlock()
		if err := to.Encode(entry{k, &copied}); err != nil {
			return err
		}
	}
	return nil
}

// replace puts a text in a file's place, all or nothing.
func replace(path string, text []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".health-*")
	if err != nil {
		return fmt.Errorf("write the health of endpoints: %w", err)
	}
	_, err = tmp.Write(text)
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write the health of endpoints: %w", err), os.Remove(tmp.Name()))
	}
	return nil
}

// Load reads what Save wrote. A file that isn't there, or is of another version, leaves the
// Book empty; one that can't be read does too, and is the error.
func (b *Book) Load(path string) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the health of endpoints: %w", err)
	}
	z, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("read the health of endpoints: %w", err)
	}
	from := gob.NewDecoder(z)
	var h header
	if err := from.Decode(&h); err != nil {
		return fmt.Errorf("read the health of endpoints: %w", err)
	}
	if h.Version != fileVersion {
		return nil
	}
	records := map[plan.EndpointKey]*record{}
	for {
		var e entry
		err := from.Decode(&e)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read the health of endpoints: %w", err)
		}
		if e.Record != nil {
			records[e.Key] = e.Record
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.records = records
	return nil
}
