// Package history records every version of every ConfigMap in a namespace and its writer. So a test
// knows how often each object was written.
package history
