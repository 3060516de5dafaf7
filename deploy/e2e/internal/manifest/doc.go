// Package manifest renders the chart as helm template does, and deletes what was
// applied as kubectl delete does.
package manifest
