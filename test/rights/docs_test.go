package rights

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/doorstep-dev/doorstep/test/cluster"
)

// marked is a block of a page that is to be written to a file, run with kubectl, or found in what that printed. "cluster
// eventually" runs it until it succeeds.
var marked = regexp.MustCompile("(?s)\n<!-- (file|cluster|output) ?(\\S*) -->\n```[a-z]+\n(.*?\n)```\n")

// docs/install.md works as written, to the end.
func TestTheInstallPage(t *testing.T) {
	t.Parallel()
	root, err := cluster.Root()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "install.md"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "config"), os.DirFS(filepath.Join(root, "config"))); err != nil {
		t.Fatal(err)
	}
	c := cluster.Start(t)
	printed, ran := "", 0
	for _, block := range marked.FindAllStringSubmatch(string(page), -1) {
		verb, arg, text := block[1], block[2], block[3]
		switch verb {
		case "file":
			path := filepath.Join(dir, arg)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		case "cluster":
			once := func() (err error) {
				printed, err = shell(t, c, dir, text)
				return err
			}
			if arg == "eventually" {
				cluster.Eventually(t, patience, text, once)
			} else if err := once(); err != nil {
				t.Fatal(err)
			}
			ran++
		case "output":
			for line := range strings.Lines(text) {
				if words := strings.Fields(line); !strings.Contains(printed, strings.Join(words, " ")) {
					t.Errorf("the page says %q, but this was printed:\n%s", words, printed)
				}
			}
		}
	}
	if ran < 4 {
		t.Errorf("%d blocks were run", ran)
	}
}

// shell runs a block with kubectl, and returns what it printed with single spaces.
func shell(t *testing.T, c *cluster.Cluster, dir, text string) (string, error) {
	t.Helper()
	bin := t.TempDir()
	// No controller here ever finishes a namespace: nothing is waited for that is deleted.
	wrapper := "#!/bin/sh\nif [ \"$1\" = delete ]; then set -- \"$@\" --wait=false; fi\nexec " + filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl") + " \"$@\"\n"
	if err := os.WriteFile(filepath.Join(bin, "kubectl"), []byte(wrapper), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", text)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "KUBECONFIG="+c.AdminKubeconfig(), "HOME="+dir)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s\n%w; it printed:\n%s", text, err, out.String())
	}
	return regexp.MustCompile(`[ \t]+`).ReplaceAllString(out.String(), " "), nil
}
