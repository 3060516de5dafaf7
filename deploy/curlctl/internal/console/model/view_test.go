package model_test

import (
	"testing"
	"time"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/console/model"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keystate"
)

func TestHostsShowTheNextTryAlthoughAnotherKeyHasNone(t *testing.T) {
	next := time.Now()
	var r model.Reading
	for _, at := range []time.Time{next, {}} {
		r.Streams.Keys = append(r.Streams.Keys,
			keys.Key{Host: "a", Condition: keystate.Condition{State: keystate.Failing, Next: at}})
	}
	if got := r.Hosts("")[0].Next; !got.Equal(next) {
		t.Errorf("next try is %v instead of %v", got, next)
	}
}
