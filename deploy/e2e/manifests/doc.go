// Package manifests checks the rendered chart against a real API server, the Pod Security Standards
// and the programs that it starts.
//
// The package does not use kubeconform: kubeconform needs JSON schemas, and the API server has
// them. A dry run with field validation decodes strictly and validates more than any schema. Custom
// resources of KEDA and the Prometheus operator are checked in the same way, with their definitions
// in testdata/crds.
package manifests
