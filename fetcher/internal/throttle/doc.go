// Package throttle decides whether a GET may be made now. It is gentle to
// hosts, of which each is asked for a few things at a time only, and fair to
// namespaces, none of which may take all slots while others want them.
//
// Who is not admitted is told when to come back. Those times are spread like a
// queue's, so that many who were turned away do not return at once; nobody
// stands in line in the process, where a hanging host would fill it. The one
// exception is a host that answers at once: waiting a moment for its next free
// slot is cheaper than to come back.
package throttle
