// Command golangci-lint is golangci-lint with the Kubernetes API linter compiled in, so that both come from one pinned
// module and no plugin is loaded at run time.
package main

import (
	"fmt"
	"os"
	"runtime/debug"

	"github.com/golangci/golangci-lint/v2/pkg/commands"
	"github.com/golangci/golangci-lint/v2/pkg/exitcodes"

	_ "sigs.k8s.io/kube-api-linter"
)

func main() {
	if err := commands.Execute(buildInfo()); err != nil {
		fmt.Fprintf(os.Stderr, "golangci-lint: %v\n", err)
		os.Exit(exitcodes.Failure)
	}
}

// buildInfo names the golangci-lint release this binary was built from, which the configuration file is checked against.
func buildInfo() commands.BuildInfo {
	info := commands.BuildInfo{Version: "unknown", Commit: "?", Date: "?", GoVersion: "unknown"}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return info
	}
	info.GoVersion = build.GoVersion
	for _, dep := range build.Deps {
		if dep.Path == "github.com/golangci/golangci-lint/v2" {
			info.Version = dep.Version
		}
	}
	return info
}
