// Package batch gathers work by what it is for: what arrives together for one
// object is done together, and by one goroutine at a time.
package batch
