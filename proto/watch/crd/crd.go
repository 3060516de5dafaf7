// Package crd has the CustomResourceDefinition of Watchers, for programs that install it.
package crd

import _ "embed" // the manifest

// Watchers is the manifest in YAML.
//
//go:embed watchers.yaml
var Watchers []byte
