// Package throttle decides whether a GET may be made now, and queues the keys that
// have to wait. It limits the GETs of the process and those of each host, and
// shares both between namespaces.
//
// A key without a slot waits in the queue of its host and namespace, ordered by
// rank and then by the time since when it waits. A lease, a timer at the broker,
// protects it meanwhile: whoever starts a key has to claim the lease first. When a
// slot comes free the throttle starts the next key of the namespace that holds
// fewest, and a little earlier if the GETs of the host are short.
//
// One slot of each host is kept for another namespace than the one that uses
// the host, and more as soon as others need them.
package throttle
