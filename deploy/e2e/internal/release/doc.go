// Package release installs the chart in a cluster as a person does, with helm,
// and treats its pods as a cluster does in bad times. Its helpers fail the spec.
package release
