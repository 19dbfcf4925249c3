// Command doorstep is durable webhook delivery: the server, the worker and the tools, one binary.
package main

import (
	"os"

	"github.com/doorstep-dev/doorstep/internal/cli"
)

func main() { os.Exit(cli.Main("doorstep")) }
