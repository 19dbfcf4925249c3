package health

import (
	"bytes"
	"compress/gzip"
	"encoding/gob"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/doorstep-dev/doorstep/internal/plan"
)

// fileVersion is that of the file's form.
const fileVersion = 1

type file struct {
	Version int
	Records map[plan.EndpointKey]*record
}

// Save writes the Book to a file, all or nothing.
func (b *Book) Save(path string) error {
	var text bytes.Buffer
	z := gzip.NewWriter(&text)
	b.mu.Lock()
	err := gob.NewEncoder(z).Encode(file{fileVersion, b.records})
	b.mu.Unlock()
	if err = errors.Join(err, z.Close()); err != nil {
		return fmt.Errorf("encode the health of endpoints: %w", err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".health-*")
	if err != nil {
		return fmt.Errorf("write the health of endpoints: %w", err)
	}
	_, err = tmp.Write(text.Bytes())
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
	var f file
	if err := gob.NewDecoder(z).Decode(&f); err != nil {
		return fmt.Errorf("read the health of endpoints: %w", err)
	}
	if f.Version != fileVersion || f.Records == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.records = f.Records
	return nil
}
