// Package crd holds the generated CustomResourceDefinitions as files, so that the binary can validate manifests by the
// very schemas a cluster would use. It promises one YAML file a kind, generated from api/v1alpha1, and never changes them.
package crd

import "embed"

// Files holds one file a kind, named doorstep.dev_<plural>.yaml, each a single CustomResourceDefinition.
//
//go:embed doorstep.dev_*.yaml
var Files embed.FS
