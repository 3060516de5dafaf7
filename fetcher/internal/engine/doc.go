// Package engine handles messages: it decides whether to fetch, fetches, and publishes the outcome.
//
// A message ends in one of four ways. It is acknowledged because the work is done, or because a
// timer will bring the key back. Or a dead letter has it with its reason. Or it is given back while
// the process drains.
//
// A process may be killed after each step, and the message is then delivered again. So the order is
// timer, dead letter, results, acknowledgement. Each is fenced by the sequence of the want or has
// an id with the sequence of the trigger. A second run costs one more GET.
package engine
