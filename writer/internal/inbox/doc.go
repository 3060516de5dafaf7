// Package inbox reads messages from the queue, rejects forged and malformed ones, and returns the
// disposition of each.
package inbox
