// Package history records every version of every ConfigMap in a namespace and
// its writer, so that a test knows afterwards what was written how often,
// and that nothing else was touched.
package history
