// Package history records every version of every ConfigMap in a namespace and its writer.
// So a test knows which objects were written how often, and which were not.
package history
