// Package engine handles messages: it decides whether to fetch, fetches, and publishes the outcome.
//
// A message is decoded into a trigger. Engine.try makes the attempt: the GET (fetch), then the rules (applyRules).
// Schedule.decide, a pure function, turns the end of the attempt into a decision: a timer, a dead letter, a result.
// Engine.carryOut publishes these, and Engine.report logs and counts the outcome. A key without a slot is queued with a
// lease, and claimed when the throttle starts it, see claim.go.
//
// A handled message is acknowledged, because the work is done, or a timer or a dead letter has the
// rest. Any other message is delivered again, because the process drains or a replica lags.
//
// A process may be killed after each step, and the message is then delivered again. So the order is timer, dead letter,
// result, acknowledgement; see Engine.carryOut for claimed keys. Each is fenced by the sequence of the want or has an
// id with the sequence of the trigger. A second run costs one more GET.
package engine
