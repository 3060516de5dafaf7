package curlctl

// CommandAt is Command with a clock.
var CommandAt = command

// Rate is the value of --rate.
type Rate = fetchRate
