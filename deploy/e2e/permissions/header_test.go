package permissions_test

import (
	"context"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// forged is a valid message with forged headers.
type forged struct {
	name   string
	header nats.Header
}

// stored reports whether NATS acts on the header only when a stream stores the message, not wherever it is
// sent.
func (f forged) stored() bool {
	return f.header.Get("Nats-Trace-Dest") == "" && f.header.Get("Nats-Request-Info") == ""
}

// headers returns the headers that make NATS act.
func headers() []forged {
	soon := "@at " + time.Now().UTC().Format(time.RFC3339Nano)
	purge := func(scheduler string) nats.Header {
		return nats.Header{"Nats-Schedule-Next": {"purge"}, "Nats-Scheduler": {scheduler}}
	}
	schedule := func(target string) nats.Header {
		return nats.Header{"Nats-Schedule": {soon}, "Nats-Schedule-Target": {target}}
	}
	sourced := schedule("curl.due.default.canary.key")
	sourced.Set("Nats-Schedule-Source", "curl.want.default.canary.key")
	return []forged{
		{"a rollup of the stream", nats.Header{"Nats-Rollup": {"all"}}},
		{"a purge of another timer", purge("curl.timer.default.canary.key")},
		{"a purge of a want", purge("curl.want.default.canary.key")},
		{"a purge of all timers", purge("curl.timer.>")},
		{"a schedule for a want", schedule("curl.want.default.canary.key")},
		{"a schedule for a result", schedule("curl.result.reconcile.default.canary.key")},
		{"a schedule for the API", schedule("$JS.API.STREAM.DELETE.CURL_RESULTS")},
		{"a schedule by a source", sourced},
		{"a trace", nats.Header{"Nats-Trace-Dest": {"$JS.API.STREAM.DELETE.CURL_RESULTS"}}},
		{"the name of another account", nats.Header{"Nats-Request-Info": {`{"acc":"CURL","svc":"CURL"}`}}},
	}
}

// undeniable lists actions that the broker cannot deny, as the tables say, because the pipeline needs the
// same permissions.
var undeniable = map[string][]string{
	"watcher": inRequests, "fetcher": inRequests, "replayer": inRequests, "admin": inRequests,
}

// inRequests lists what an identity can do to the whole stream of requests if it may publish on any of its
// subjects.
var inRequests = []string{
	"a rollup of the stream: canary timer, canary want",
	"a purge of another timer: canary timer",
	"a schedule for a want: canary want",
}

// forge sends a message with forged headers to every subject that the identity may publish to.
func (s *attacker) forge(ctx context.Context, f forged) {
	GinkgoHelper()
	for _, row := range s.may {
		if f.stored() && !strings.HasPrefix(row, "curl.") {
			continue
		}
		m := nats.NewMsg(strings.Replace(row, "default.cm.key", "default.forged.key", 1))
		m.Header = f.header
		if f.stored() {
			limited, cancel := context.WithTimeout(ctx, responseTimeout)
			_, err := s.nc.RequestMsgWithContext(limited, m) // the response may be an error
			cancel()
			Expect(err).NotTo(HaveOccurred())
		} else {
			m.Reply = s.inbox
			Expect(s.nc.PublishMsg(m)).To(Succeed())
		}
	}
	Expect(s.nc.Flush()).To(Succeed())
	if f.header.Get("Nats-Schedule") != "" {
		s.fired(ctx)
	}
}

// fired waits until a timer of the spec has fired, and therefore all earlier ones.
func (s *attacker) fired(ctx context.Context) {
	GinkgoHelper()
	m := nats.NewMsg("curl.timer.default.last.key")
	m.Header.Set("Nats-Schedule", "@at "+time.Now().Add(300*time.Millisecond).UTC().Format(time.RFC3339Nano))
	m.Header.Set("Nats-Schedule-Target", "curl.due.default.last.key")
	before := suitetest.Must(s.js.PublishMsg(ctx, m))
	stream := suitetest.Must(s.js.Stream(ctx, pipeline.Requests))
	Eventually(ctx, stream.GetLastMsgForSubject).WithArguments("curl.due.default.last.key").WithTimeout(recreateTimeout).
		Should(HaveField("Sequence", BeNumerically(">", before.Sequence)))
}

// forgeAll tries all headers and returns the changes that they made.
func (s *attacker) forgeAll(ctx context.Context) []string {
	GinkgoHelper()
	var done []string
	before := s.see(ctx)
	for _, f := range headers() {
		s.forge(ctx, f)
		after := s.see(ctx)
		harm := s.broken(before, after)
		if f.stored() {
			harm = changed(before, after)
		}
		if len(harm) > 0 {
			done = append(done, f.name+": "+strings.Join(harm, ", "))
			s.restore(ctx)
			after = s.see(ctx)
		}
		before = after
	}
	return done
}

var _ = Describe("A recurring schedule in the stream of requests", func() {
	It("outlives the identity that stored it, until the stream is cleared", func(ctx SpecContext) {
		b := start(ctx, plain)
		s := newAttacker(ctx, b, "fetcher")
		schedule := nats.NewMsg("curl.timer.default.forged.key")
		schedule.Data = []byte("forged")
		schedule.Header.Set("Nats-Schedule", "@every 1s")
		schedule.Header.Set("Nats-Schedule-Target", "curl.want.default.canary.key")
		suitetest.Must(s.nc.RequestMsgWithContext(ctx, schedule))
		s.nc.Close()
		want := func() string { return s.last(ctx, pipeline.Requests, "curl.want.default.canary.key") }
		for range 2 {
			suitetest.Must(s.js.Publish(ctx, "curl.want.default.canary.key", []byte("a want")))
			Eventually(want).WithTimeout(recreateTimeout).Should(HaveSuffix(`"forged"`))
		}

		rollup := nats.NewMsg("curl.timer.default.cleared.key")
		rollup.Header.Set("Nats-Rollup", "all")
		suitetest.Must(b.connect("admin").RequestMsgWithContext(ctx, rollup))
		Consistently(want).WithTimeout(2 * time.Second).WithPolling(100 * time.Millisecond).Should(BeEmpty())
	})
})
