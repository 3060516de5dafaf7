// Package throttle decides whether a GET may be made now, and queues the keys that
// have to wait. It limits the GETs of the process and those of each host, and
// shares both between namespaces.
//
// A key without a slot waits in the queue of its host and namespace, ordered by
// rank and then by the time since when it waits. A lease, which is a timer at the
// broker, protects it meanwhile: a fetcher that starts a key has to claim the lease
// first. The throttle starts the next key of the namespace that holds fewest slots,
// so early that the claim ends when a slot comes free.
//
// One slot of each host is kept for a second namespace, and more as soon as others
// need them.
package throttle
