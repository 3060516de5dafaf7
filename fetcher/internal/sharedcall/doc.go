// Package sharedcall lets callers that ask for the same share one call, while it
// runs and for a moment after.
package sharedcall
