// Package inbox takes results off the queue: it reads messages, refuses what no
// fetcher and no watcher of ours can have meant, and returns the disposition of each
// by what became of it.
package inbox
