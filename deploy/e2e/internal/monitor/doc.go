// Package monitor reads the dashboard and the alerts of the project, and
// answers their queries from the metrics of running services, with the engine
// of Prometheus as a library: nothing needs to be installed for it.
package monitor
