// Package manifest renders the chart as helm template does, and deletes objects as
// kubectl delete does.
package manifest
