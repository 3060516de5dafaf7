// Package throttle decides whether a GET may start now, and queues keys that may not. It limits
// the concurrent GETs of the process and of each host, and shares both between namespaces.
//
// A key without a slot is queued for its host and namespace, ordered by rank and waiting time. Meanwhile its timer at
// the broker is a lease, which a fetcher must claim before it starts the key. The throttle starts the next key of the
// namespace with the fewest slots, early enough for the claim to end when a slot comes free.
//
// One slot of each host is reserved for a second namespace, and more while others need them.
//
// Throttle.Acquire is for delivered keys, and Throttle.Enqueue for keys to queue, which get a Ticket when they are
// started. Throttle.Hold counts the memory of a key that waits for something else first. limits.go decides whether a
// key may have a slot, and queue.go which key is next. A Ticket goes through the states in ticket.go, and each change
// calls Throttle.assignSlots.
package throttle
