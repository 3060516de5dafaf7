package v1alpha1

import _ "embed" // the manifest

// Definition is the CustomResourceDefinition of Watchers in YAML, for programs that install it.
//
//go:embed crd/watchers.yaml
var Definition []byte
