package pipeline

import (
	"fmt"

	"golang.org/x/mod/semver"
)

// MinServer is the oldest version of NATS without known faults that break a promise.
const MinServer = "2.14.7"

// flaws are the faults of older versions, each with the version that fixed it, the oldest first.
var flaws = []struct{ fixed, flaw string }{
	{"2.12.0", "it cannot schedule messages (ADR-51)"},
	{"2.14.0", "any client may purge any subject by schedule headers (nats-server#8055, #8135)"},
	{MinServer, "it leaks the entries of expired messages (nats-server#8594)"},
}

// ServerFlaw returns the worst known flaw of a version of NATS, as in "upgrade NATS 2.12.1 to 2.14.7 or
// newer: any client …", or "". A version that is not semantic, such as that of a build from source, has none.
func ServerFlaw(version string) string {
	if !semver.IsValid("v" + version) {
		return ""
	}
	for _, f := range flaws {
		if semver.Compare("v"+version, "v"+f.fixed) < 0 {
			return fmt.Sprintf("upgrade NATS %s to %s or newer: %s", version, MinServer, f.flaw)
		}
	}
	return ""
}
