package curlctl

// CommandAt is Command with another clock.
var CommandAt = command
