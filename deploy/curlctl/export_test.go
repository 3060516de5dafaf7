package curlctl

// CommandAt is Command with a clock.
var CommandAt = command
