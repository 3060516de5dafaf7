// Package manifests holds what the chart renders to a real API server, to the
// Pod Security Standards and to the programs that it starts.
//
// There is no kubeconform: it needs JSON schemas, which the API server itself has.
// It decodes strictly and validates beyond any schema when asked for a dry run with
// field validation. The custom resources of KEDA and of the Prometheus operator are
// checked in the same way, against their own definitions in testdata/crds.
package manifests
