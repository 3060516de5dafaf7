// Package engine handles messages: it decides whether to fetch, fetches, and publishes the outcome.
//
// A handled message is acknowledged, because the work is done, or a timer or a dead letter has the
// rest. Any other message is delivered again, because the process drains or a replica lags.
//
// A process may be killed after each step, and the message is then delivered again. So the order is
// timer, dead letter, result, acknowledgement; see Engine.carryOut for keys that waited. Each is
// fenced by the sequence of the want or has an id with the sequence of the trigger. A second run
// costs one more GET.
package engine
