// Package batch groups concurrent work by object, so that one goroutine at a time works on an
// object.
package batch
