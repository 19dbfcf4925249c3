// Command kubectl-doorstep is the same command tree as doorstep, found by kubectl as a plugin.
package main

import (
	"os"

	"github.com/doorstep-dev/doorstep/internal/cli"
)

func main() { os.Exit(cli.Main("kubectl doorstep")) }
