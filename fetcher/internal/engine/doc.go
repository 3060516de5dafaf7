// Package engine is what a fetcher does with a message: it decides whether
// there is still something to fetch, fetches it, and hands on what came out.
//
// A message ends in one of four ways: it is acknowledged because all has been
// done; or because a timer was set that will bring it back; or because a
// dead letter holds it with its reason; or it is given back to the server while the
// process drains.
//
// Every step may be the last of a process that is killed, and the message is
// then delivered anew. So effects come in the order timer, dead letter,
// results, acknowledgement; each is fenced by the sequence of the want or named
// after that of the trigger, and a second run costs one more GET and nothing
// else.
package engine
