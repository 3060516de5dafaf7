package process_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/rs/zerolog"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process"
)

func TestFieldsHaveOneFormat(t *testing.T) {
	var out bytes.Buffer
	log := zerolog.New(&out)
	line := process.LogKey(log.Info(), pipeline.Key{Namespace: "shop", Name: "cool.map", Key: "my.data"})
	line = process.LogObject(line, "shop", "cool.map")
	line = process.LogDuration(process.LogCause(line, v1.Cause_CAUSE_RETRY), "next", 43222692*time.Nanosecond)
	process.LogDuration(line, "wait", 68*time.Minute+38*time.Second+470*time.Millisecond).Msg("x")
	const want = `{"level":"info","key":"shop/cool.map/my.data","configmap":"shop/cool.map","cause":"retry",` +
		`"next":"43ms","wait":"1h8m38s","message":"x"}` + "\n"
	if got := out.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var none *zerolog.Event
	process.LogDuration(process.LogKey(none, pipeline.Key{}), "next", time.Second).Msg("a line that is not written")
}
