// Package history records every version of every ConfigMap in a namespace and
// who wrote it, so that a test can tell afterwards what was written how often,
// and that nothing else was touched.
package history
