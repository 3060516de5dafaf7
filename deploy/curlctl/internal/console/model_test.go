package console

import (
	"testing"
	"time"

	"github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	"github.com/kv8s/curl-me-that/proto/keystate"
)

func TestHostsShowTheNextTryAlthoughAnotherKeyHasNone(t *testing.T) {
	r, next := reading{}, time.Now()
	for _, at := range []time.Time{next, {}} {
		r.Streams.Keys = append(r.Streams.Keys,
			keys.Key{Host: "a", Condition: keystate.Condition{State: keystate.Failing, Next: at}})
	}
	gomega.NewWithT(t).Expect(r.Hosts()[0].Next).To(gomega.Equal(next))
}
