// Package sharedcall lets callers with the same key share one call, while it runs and for a moment
// after.
package sharedcall
