// Package metric creates the metrics of a service in a uniform way.
//
// Names have the form curlmethat_<service>_<noun>_<unit>, with _total for counters, in base units.
// All values of a label exist from the start, so that rates begin at zero. No label contains a URL,
// host, namespace or object, because tenants choose these. Histograms have classic and native
// buckets.
//
// Each metric is recorded as a Definition, for the page about all metrics.
package metric
