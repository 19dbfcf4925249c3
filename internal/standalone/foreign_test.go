package standalone

import (
	"os"
	"path/filepath"
	"testing"
)

// A mistyped --data must not spread files over somebody else's folder.
func TestAForeignDataFolderIsLeftUntouched(t *testing.T) {
	for name, c := range map[string]struct {
		files []string
		ok    bool
	}{
		"empty":              {nil, true},
		"a file system's":    {[]string{"lost+found/"}, true},
		"ours":               {[]string{"queue/", "api-key", "notes.txt"}, true},
		"ours without queue": {[]string{"secrets/"}, true},
		"somebody else's":    {[]string{"passwd", "hosts"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, f := range c.files {
				if f[len(f)-1] == '/' {
					if err := os.Mkdir(filepath.Join(dir, f), 0o700); err != nil {
						t.Fatal(err)
					}
				} else if err := os.WriteFile(filepath.Join(dir, f), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := makePrivateFolder(dir); (err == nil) != c.ok {
				t.Errorf("%v, want accepted: %t", err, c.ok)
			}
			after, err := os.ReadDir(dir)
			if err != nil || len(after) != len(c.files) {
				t.Errorf("the folder holds %v (%v)", after, err)
			}
		})
	}
	if err := makePrivateFolder(filepath.Join(t.TempDir(), "new")); err != nil {
		t.Errorf("a folder that doesn't exist yet: %v", err)
	}
}
