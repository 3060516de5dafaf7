package process

import (
	"time"

	"github.com/rs/zerolog"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// LogKey adds a key as key=namespace/name/key.
func LogKey(line *zerolog.Event, key pipeline.Key) *zerolog.Event {
	return line.Str("key", key.String())
}

// LogObject adds a ConfigMap as configmap=namespace/name.
func LogObject(line *zerolog.Event, namespace, name string) *zerolog.Event {
	return line.Str("configmap", namespace+"/"+name)
}

// LogCause adds the cause of a fetch, such as cause=retry, with the same word as in metric labels,
// traces and curlctl.
func LogCause(line *zerolog.Event, cause v1.Cause) *zerolog.Event {
	return line.Str("cause", pipeline.CauseName(cause))
}

// LogDuration adds a readable duration, such as next=1m20s, without insignificant digits.
func LogDuration(line *zerolog.Event, name string, d time.Duration) *zerolog.Event {
	return line.Str(name, rounded(d).String())
}

func rounded(d time.Duration) time.Duration {
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if d >= 10*unit {
			return d.Round(unit)
		}
	}
	return d
}
