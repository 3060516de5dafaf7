// Package throttle decides whether a GET may be made now, and if not, when.
// It asks each host for a few things at a time only, and shares the slots of
// the process and those of each host fairly between namespaces.
//
// A request that finds no slot gets a reservation: a time at which a slot will
// probably be free, on a virtual clock per host and namespace that advances by
// what one GET takes divided by the slots (start-time fair queueing). Parked
// until then, it costs no worker, no slot and no memory here. Reservations are a
// little denser than slots come free, and a short wait in memory, of a bounded
// number of requests, evens out the rest, so that no slot is idle while
// something is parked. A request that comes back in vain is given a time behind
// all others of its namespace. While no GET of a host has ended, its reservations
// are guesses: they are remembered, and advanced if the host turns out to be quicker.
// What cannot be advanced is put off by a guess for a few seconds only.
//
// One slot of each host is kept for another namespace than the one that uses
// the host, and more as soon as others have use for them.
package throttle
