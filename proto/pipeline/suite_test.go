package pipeline_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

func TestPipeline(t *testing.T) {
	t.Parallel() // with the plain tests
	suitetest.Run(t, "Pipeline")
}

var _ = BeforeSuite(suitetest.ExpectNoLeaks)

var key = pipeline.Key{Namespace: "default", Name: "kube-root-ca.crt", Key: "my.data"}

// fetcher has the options of a fetcher.
var fetcher = pipeline.ConsumeOptions{Stream: pipeline.Requests, Consumer: pipeline.FetcherConsumer, Concurrency: 4}

// ensured returns a connection to a new broker with all streams and consumers, and a client on it.
func ensured() (jetstream.JetStream, *pipeline.Client) {
	GinkgoHelper()
	_, js, _ := natstest.Ensured(GinkgoTB(), pipeline.Topology{})
	return js, pipeline.NewClient(js)
}

// sequence returns the sequence of the want of a key.
func sequence(ctx context.Context, c *pipeline.Client, k pipeline.Key) uint64 {
	GinkgoHelper()
	_, seq, err := c.LastWant(ctx, k)
	Expect(err).NotTo(HaveOccurred())
	return seq
}

// recording records the calls of a Consume that runs in the background.
type recording struct {
	done chan struct{}

	mu             sync.Mutex
	began, subject []string
	dispositions   []pipeline.Disposition
	changes        []error
}

// add appends to one of the lists of a recording.
func add[T any](r *recording, to *[]T, value T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*to = append(*to, value)
}

// list returns a copy of one of the lists of a recording.
func list[T any](r *recording, of *[]T) []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(*of)
}

func (r *recording) begun() []string   { return list(r, &r.began) }
func (r *recording) handled() []string { return list(r, &r.subject) }
func (r *recording) states() []error   { return list(r, &r.changes) }

// state returns the last reported state.
func (r *recording) state() error {
	if all := r.states(); len(all) > 0 {
		return all[len(all)-1]
	}
	return context.DeadlineExceeded
}

// ended returns the names of the dispositions.
func (r *recording) ended() (words []string) {
	for _, d := range list(r, &r.dispositions) {
		words = append(words, d.String())
	}
	return words
}

// errors returns the errors of the dispositions that have one.
func (r *recording) errors() (errs []error) {
	for _, d := range list(r, &r.dispositions) {
		if d.Err() != nil {
			errs = append(errs, d.Err())
		}
	}
	return errs
}

// always returns a handler with the same disposition for every message.
func always(d pipeline.Disposition) pipeline.Handler {
	return func(context.Context, *pipeline.Delivery) pipeline.Disposition { return d }
}

// acking returns a handler that acknowledges a message when do returns.
func acking(do func(context.Context, *pipeline.Delivery)) pipeline.Handler {
	return func(ctx context.Context, d *pipeline.Delivery) pipeline.Disposition {
		do(ctx, d)
		return pipeline.Ack()
	}
}

// consume runs Consume until the spec ends.
func consume(
	ctx context.Context, js jetstream.JetStream, o pipeline.ConsumeOptions, handle pipeline.Handler,
) *recording {
	ctx, cancel := context.WithCancel(ctx)
	r := &recording{done: make(chan struct{})}
	o.State = func(err error) { add(r, &r.changes, err) }
	o.Observe = func(m *pipeline.Delivery, d pipeline.Disposition) {
		add(r, &r.subject, m.Subject())
		add(r, &r.dispositions, d)
	}
	go func() {
		defer GinkgoRecover()
		defer close(r.done)
		Expect(pipeline.Consume(ctx, js, o, func(ctx context.Context, m *pipeline.Delivery) pipeline.Disposition {
			add(r, &r.began, m.Subject())
			return handle(ctx, m)
		})).To(Succeed())
	}()
	DeferCleanup(func() {
		cancel()
		Eventually(r.done).Should(BeClosed())
	})
	return r
}

// must returns the value of a call that must succeed.
func must[T any](value T, err error) T {
	GinkgoHelper()
	Expect(err).NotTo(HaveOccurred())
	return value
}

func TestReasons(t *testing.T) {
	t.Parallel()
	camelCase := regexp.MustCompile(`^([A-Z][a-z]+|[A-Z]{2,}[A-Z][a-z]+)+$`)
	seen := map[string]v1.FailureClass{}
	for n, name := range v1.FailureClass_name {
		class := v1.FailureClass(n)
		reason := pipeline.Reason(class)
		if !camelCase.MatchString(reason) {
			t.Errorf("%s has the reason %q, which is not CamelCase", name, reason)
		}
		if other, ok := seen[reason]; ok {
			t.Errorf("%s and %s share the reason %q", name, other, reason)
		}
		seen[reason] = class
		if got := pipeline.ClassOf(reason); got != class {
			t.Errorf("ClassOf(%q) = %s, want %s", reason, got, name)
		}
	}
	if got := pipeline.Reason(99); got != "Unknown" {
		t.Errorf("Reason(99) = %q: a newer version's class must have a reason", got)
	}
	for _, unknown := range []string{"", "timeout", "Nonsense", "Unknown"} {
		if got := pipeline.ClassOf(unknown); got != v1.FailureClass_FAILURE_CLASS_UNSPECIFIED {
			t.Errorf("ClassOf(%q) = %s", unknown, got)
		}
	}
}

func TestRetries(t *testing.T) {
	t.Parallel()
	retried := map[v1.FailureClass]bool{
		v1.FailureClass_FAILURE_CLASS_DNS_FAILED:         true,
		v1.FailureClass_FAILURE_CLASS_CONNECT_FAILED:     true,
		v1.FailureClass_FAILURE_CLASS_TLS_FAILED:         true,
		v1.FailureClass_FAILURE_CLASS_TIMEOUT:            true,
		v1.FailureClass_FAILURE_CLASS_CREDENTIALS_FAILED: true,
	}
	for n := range v1.FailureClass_name {
		f := &v1.Failure{Class: v1.FailureClass(n)}
		expectRetries(t, f, retried[f.GetClass()])
		if f.StatusCode = 503; pipeline.Retries(f, 3, 3) || pipeline.Retries(f, 0, 0) {
			t.Errorf("%s is retried after the last attempt", f)
		}
	}
	for status, want := range map[int32]bool{
		0: false, 201: false, 204: false, 301: false,
		400: false, 401: false, 403: false, 404: false, 410: false,
		408: true, 425: true, 429: true,
		500: true, 502: true, 503: true, 504: true, 520: true, 599: true,
		501: false, 505: false, 600: false, -1: false,
	} {
		expectRetries(t, &v1.Failure{Class: v1.FailureClass_FAILURE_CLASS_BAD_STATUS, StatusCode: status}, want)
	}
	for detail, want := range map[v1.FailureDetail]bool{
		v1.FailureDetail_FAILURE_DETAIL_CUT_OFF: true, v1.FailureDetail_FAILURE_DETAIL_COSTLY: true,
		v1.FailureDetail_FAILURE_DETAIL_NOT_HTTP: false, v1.FailureDetail_FAILURE_DETAIL_NOT_JSON: false,
		v1.FailureDetail_FAILURE_DETAIL_INAPPLICABLE: false, v1.FailureDetail_FAILURE_DETAIL_NOT_CERTIFICATES: false,
	} {
		f := &v1.Failure{Class: v1.FailureClass_FAILURE_CLASS_CONTENT_REJECTED, Detail: detail, StatusCode: 503}
		expectRetries(t, f, want)
	}
	expectRetries(t, &v1.Failure{ // a server without TLS
		Class: v1.FailureClass_FAILURE_CLASS_TLS_FAILED, Detail: v1.FailureDetail_FAILURE_DETAIL_PLAIN_HTTP,
	}, false)
}

func expectRetries(t *testing.T, f *v1.Failure, want bool) {
	t.Helper()
	if got := pipeline.Retries(f, 1, 3); got != want {
		t.Errorf("Retries(%s) = %t", f, got)
	}
}

func TestHostOf(t *testing.T) {
	for url, want := range map[string]string{
		"https://Data.Example.com:8080/x?q":                 "data.example.com",
		"http://127.0.0.1:18080/x":                          pipeline.HiddenHost,
		"https://[2001:db8::1]/":                            pipeline.HiddenHost,
		"https://[fe80::1%25eth0]:443/":                     pipeline.HiddenHost,
		"https://[::ffff:10.0.0.1]/":                        pipeline.HiddenHost,
		"https://10.0.0.1.example.com/":                     "10.0.0.1.example.com",
		"https://" + strings.Repeat("a", 300) + ".example/": strings.Repeat("a", 253),
		"https:///x": "",
		"://":        "",
	} {
		if got := pipeline.HostOf(url); got != want {
			t.Errorf("HostOf(%q) = %q, want %q", url, got, want)
		}
	}
}

func TestHostIs(t *testing.T) {
	for _, c := range []struct {
		url, host string
		want      bool
	}{
		{"https://Data.Example.com:8080/x", "data.EXAMPLE.com", true},
		{"https://data.example.com/", "example.com", false},
		{"https://[2001:db8::1]:443/", "2001:DB8:0::1", true},
		{"https://[::ffff:10.0.0.1]/", "10.0.0.1", true},
		{"https://[2001:db8::1]/", "[2001:db8::1]", true},
		{"https://[2001:db8::1]/", "2001:db8::2", false},
		{"https://[2001:db8::1]/", pipeline.HiddenHost, true},
		{"https://data.example.com/", "10.0.0.1", false},
		{"https://data.example.com/", "0.0.0.0", false},
		{"://", "10.0.0.1", false},
	} {
		if got := pipeline.HostIs(c.url, c.host); got != c.want {
			t.Errorf("%s at %s: %t", c.host, c.url, got)
		}
	}
}

var _ = DescribeTable("The flaw of NATS", func(version, flaw string) {
	Expect(pipeline.ServerFlaw(version)).To(Equal(flaw))
},
	Entry("2.11", "2.11.9", "upgrade NATS 2.11.9 to 2.14.7 or newer: it cannot schedule messages (ADR-51)"),
	Entry("2.12", "2.12.0", "upgrade NATS 2.12.0 to 2.14.7 or newer: "+
		"any client may purge any subject by schedule headers (nats-server#8055, #8135)"),
	Entry("2.14 with the leak", "2.14.6", "upgrade NATS 2.14.6 to 2.14.7 or newer: "+
		"it leaks the entries of expired messages (nats-server#8594)"),
	Entry("a release candidate", "2.14.7-RC.1", "upgrade NATS 2.14.7-RC.1 to 2.14.7 or newer: "+
		"it leaks the entries of expired messages (nats-server#8594)"),
	Entry("the oldest supported version", pipeline.MinServer, ""),
	Entry("the version that is tested", "2.15.3", ""),
	Entry("a build from source", "dev", ""),
)

func ExampleKey() {
	key := pipeline.Key{Namespace: "team-a", Name: "config.v2", Key: "ca.pem"}
	fmt.Println(key.Want())
	fmt.Println(key.Timer())
	fmt.Println(key.Due())
	fmt.Println(key.Content())
	kind, parsed, err := pipeline.ParseSubject(key.Timer())
	fmt.Println(kind, parsed, err)
	// Output:
	// curl.want.team-a.config%2Ev2.ca%2Epem
	// curl.timer.team-a.config%2Ev2.ca%2Epem
	// curl.due.team-a.config%2Ev2.ca%2Epem
	// curl.result.content.team-a.config%2Ev2.ca%2Epem
	// curl.timer team-a/config.v2/ca.pem <nil>
}

// M1: every message is acknowledged, rescheduled, or stored with its reason.
var _ = Describe("Consume with dispositions", func() {
	var (
		js   jetstream.JetStream
		c    *pipeline.Client
		acks func() []string
	)
	BeforeEach(func() {
		s, own, _ := natstest.Ensured(GinkgoTB(), pipeline.Topology{})
		js, c = own, pipeline.NewClient(own)
		acks = watchAcks(natstest.Connect(GinkgoTB(), s).Conn())
	})
	publish := func(ctx context.Context, k pipeline.Key) {
		GinkgoHelper()
		must(c.PublishWant(ctx, natstest.Want(k, "https://a.example/x?token=secret"), 0))
	}
	pending := func(ctx context.Context) func() int { return func() int { return outstanding(ctx, js) } }

	DescribeTable("retries a message",
		func(ctx SpecContext, first pipeline.Disposition, word, ack string) {
			publish(ctx, key)
			r := consume(ctx, js, fetcher, func(_ context.Context, d *pipeline.Delivery) pipeline.Disposition {
				if d.NumDelivered() == 1 {
					return first
				}
				return pipeline.Ack()
			})
			Eventually(r.ended).Should(ConsistOf(word, "ack")) // the second handling may end first
			Eventually(acks).Should(HaveExactElements(MatchRegexp(ack), "+ACK"))
			Eventually(pending(ctx)).Should(BeZero())
		},
		Entry("after a given delay", pipeline.Retry(50*time.Millisecond), "retry", `^-NAK \{"delay": 50000000\}$`),
		Entry("after a growing delay by default", pipeline.Retry(0), "retry", `^-NAK \{"delay": \d{9,10}\}$`),
		Entry("if its handler decides nothing", pipeline.Disposition{}, "retry", `^-NAK \{"delay": \d{9,10}\}$`),
		Entry("at once in another process", pipeline.GiveBack(), "give_back", `^-NAK$`),
	)

	It("publishes a dead letter with its reason", func(ctx SpecContext) {
		publish(ctx, key)
		why := &pipeline.ClassError{Class: v1.FailureClass_FAILURE_CLASS_WRITE_FAILED, Err: errors.New("protected")}
		r := consume(ctx, js, fetcher, always(pipeline.DeadLetter(why)))
		Eventually(r.ended).Should(HaveExactElements("dead_letter"))
		Eventually(pending(ctx)).Should(BeZero())
		Expect(deadLetters(ctx, c)).To(under("WriteFailed"))
		kept := new(v1.DeadLetter)
		Expect(proto.Unmarshal(deadLetters(ctx, c)[0].Data, kept)).To(Succeed())
		Expect(kept.GetWant().GetUrl()).To(Equal("https://a.example/x?token=secret"), "it can be replayed")
		Expect(kept.GetSubject()).To(Equal(key.Want()))
		Expect(kept.GetPayload()).NotTo(BeEmpty())
	})

	It("publishes one dead letter even if its acknowledgement is lost", func(ctx SpecContext) {
		publish(ctx, key)
		consumer := must(js.Consumer(ctx, pipeline.Requests, pipeline.FetcherConsumer))
		m := must(consumer.Next())
		handling := pipeline.NewConsumer(js, fetcher, always(pipeline.DeadLetter(pipeline.ErrMalformed)))
		for range 2 {
			Expect(handling.Handle(ctx, unacknowledged{m}).String()).To(Equal("dead_letter"))
		}
		Expect(deadLetters(ctx, c)).To(HaveLen(1))
	})

	It("retries a message whose dead letter cannot be published", func(ctx SpecContext) {
		Expect(js.DeleteStream(ctx, pipeline.Failures)).To(Succeed())
		publish(ctx, key)
		r := consume(ctx, js, fetcher, always(pipeline.DeadLetter(pipeline.ErrMalformed)))
		Eventually(r.ended).Should(HaveExactElements("retry"))
		Expect(r.errors()[0]).To(MatchError(ContainSubstring("publish dead letter")))
		must(pipeline.Ensure(ctx, js, pipeline.Topology{}))
		Eventually(r.ended).Should(HaveExactElements("retry", "dead_letter"))
		Expect(deadLetters(ctx, c)).To(HaveLen(1))
	})

	It("retries a message whose handler panics, and continues with others", func(ctx SpecContext) {
		publish(ctx, natstest.Numbered(1))
		publish(ctx, natstest.Numbered(2))
		r := consume(ctx, js, fetcher, func(_ context.Context, d *pipeline.Delivery) pipeline.Disposition {
			if d.Subject() == natstest.Numbered(1).Want() && d.NumDelivered() == 1 {
				panic("index out of range")
			}
			return pipeline.Ack()
		})
		Eventually(r.ended).Should(ConsistOf("retry", "ack", "ack"))
		Expect(r.errors()).To(ConsistOf(MatchError("handler panicked: index out of range")))
		Expect(list(r, &r.dispositions)).To(ContainElement(
			HaveField("PanicStack()", ContainSubstring("suite_test.go"))))
		Eventually(pending(ctx)).Should(BeZero())
	})

	It("reports progress of a message until it has ended", func(ctx SpecContext) {
		o := fetcher
		o.InProgressEvery = 10 * time.Millisecond
		publish(ctx, key)
		finish := make(chan struct{})
		r := consume(ctx, js, o, func(context.Context, *pipeline.Delivery) pipeline.Disposition {
			<-finish
			return pipeline.Retry(time.Hour)
		})
		Eventually(acks).Should(ContainElements("+WPI", "+WPI", "+WPI"))
		close(finish)
		Eventually(r.ended).Should(HaveLen(1))
		Eventually(acks).Should(ContainElement(HavePrefix("-NAK")))
		Consistently(func() string { all := acks(); return all[len(all)-1] },
			100*time.Millisecond).Should(HavePrefix("-NAK"))
	})
})

// deadLetters returns all dead letters.
func deadLetters(ctx context.Context, c *pipeline.Client) (all []pipeline.Message) {
	GinkgoHelper()
	for m, err := range c.Scan(ctx, pipeline.Range{Stream: pipeline.Failures, Subject: ">"}) {
		Expect(err).NotTo(HaveOccurred())
		all = append(all, m)
	}
	return all
}

// under matches the only dead letter of the key by its reason.
func under(reason string) types.GomegaMatcher {
	return HaveExactElements(HaveField("Subject", key.DeadLetter(reason, "a.example")))
}

// unacknowledged is a message whose acknowledgements do not reach the server.
type unacknowledged struct{ jetstream.Msg }

// Ack does nothing.
func (unacknowledged) Ack() error { return nil }

// watchAcks returns a function that returns the acknowledgements that were sent to the server.
func watchAcks(nc *nats.Conn) func() []string {
	GinkgoHelper()
	acks := must(nc.SubscribeSync("$JS.ACK.>"))
	Expect(nc.Flush()).To(Succeed())
	var sent []string
	return func() []string {
		for m, err := acks.NextMsg(time.Millisecond); err == nil; m, err = acks.NextMsg(time.Millisecond) {
			sent = append(sent, string(m.Data))
		}
		return sent
	}
}

// soon is well below AckWait.
const soon = 20 * time.Second

var _ = Describe("Consume", func() {
	It("waits until the consumer exists, and reports that once", func(ctx SpecContext) {
		js := natstest.Connect(GinkgoTB(), natstest.Broker(GinkgoTB(), natstest.Options{}))
		r := consume(ctx, js, fetcher, always(pipeline.Ack()))
		Eventually(r.states).Should(HaveLen(1))
		Expect(r.states()[0]).To(MatchError(jetstream.ErrStreamNotFound))
		Consistently(r.states, time.Second).Should(HaveLen(1), "each retry would report it again")

		must(pipeline.Ensure(ctx, js, pipeline.Topology{}))
		must(pipeline.NewClient(js).PublishWant(ctx, natstest.Want(key, "https://a.example"), 0))
		Eventually(r.handled).Should(ConsistOf(key.Want()))
		Eventually(r.states).Should(HaveLen(2))
		Expect(r.states()[1]).NotTo(HaveOccurred())
	})

	It("reports that it does not read while the consumer is missing", func(ctx SpecContext) {
		_, js, _ := natstest.Ensured(GinkgoTB(), pipeline.Topology{})
		r := consume(ctx, js, fetcher, always(pipeline.Ack()))
		Eventually(r.states).Should(HaveLen(1))
		Expect(r.state()).NotTo(HaveOccurred())
		Expect(js.DeleteConsumer(ctx, pipeline.Requests, pipeline.FetcherConsumer)).To(Succeed())
		Eventually(r.state).Should(MatchError(jetstream.ErrConsumerNotFound))
		Expect(r.state()).To(MatchError(ContainSubstring("consumer fetcher of stream CURL_REQUESTS")))
		reported := len(r.states())
		Consistently(r.states, time.Second).Should(HaveLen(reported))
	})

	It("handles up to Concurrency messages at a time", func(ctx SpecContext) {
		_, js, _ := natstest.Ensured(GinkgoTB(), pipeline.Topology{})
		publishWants(ctx, pipeline.NewClient(js), 50, 10)
		var now, most atomic.Int32
		full := make(chan struct{})
		fill := sync.OnceFunc(func() { close(full) })
		r := consume(ctx, js, fetcher, acking(func(context.Context, *pipeline.Delivery) {
			if raise(&most, now.Add(1)); most.Load() >= 4 {
				fill()
			}
			defer now.Add(-1)
			<-full
			wait(ctx, 5*time.Millisecond)
		}))
		Eventually(r.handled).Should(HaveLen(50))
		Expect(most.Load()).To(BeEquivalentTo(4))
	})

	It("handles up to MaxBytes at a time, and a larger message alone", func(ctx SpecContext) {
		js, c := ensured()
		const bound = 100 << 10
		for n, size := range []int{40 << 10, 40 << 10, 150 << 10, 40 << 10, 40 << 10, 40 << 10, 150 << 10, 150 << 10, 10} {
			Expect(c.PublishResult(ctx, content(natstest.Numbered(n), uint64(n+1), size))).To(Succeed())
		}
		var now, most, atOnce, mostAtOnce atomic.Int32
		r := consume(ctx, js, pipeline.ConsumeOptions{
			Stream: pipeline.Results, Consumer: pipeline.WriterConsumer, Concurrency: 8, MaxBytes: bound,
		}, acking(func(_ context.Context, m *pipeline.Delivery) {
			size := int32(min(len(m.Data()), bound))
			raise(&most, now.Add(size))
			raise(&mostAtOnce, atOnce.Add(1))
			wait(ctx, 50*time.Millisecond)
			atOnce.Add(-1)
			now.Add(-size)
		}))
		Eventually(r.handled).Should(HaveLen(9))
		Expect(most.Load()).To(BeNumerically("<=", bound))
		Expect(mostAtOnce.Load()).To(BeNumerically(">=", 2))
	})

	It("on shutdown returns waiting messages at once, and finishes the others", func(ctx SpecContext) {
		s, js, _ := natstest.Ensured(GinkgoTB(), pipeline.Topology{})
		publishWants(ctx, pipeline.NewClient(js), 20, 10)
		finish := make(chan struct{})
		var cancelled atomic.Bool
		stopping, stop := context.WithCancel(ctx)
		first := consume(stopping, js, fetcher, acking(func(ctx context.Context, _ *pipeline.Delivery) {
			<-finish
			cancelled.Store(cancelled.Load() || ctx.Err() != nil)
		}))
		Eventually(first.begun).Should(HaveLen(4))
		// More messages wait in the buffer, and one waits for a slot.
		Eventually(func() int { return outstanding(ctx, js) }).Should(BeNumerically(">", 5))

		stop()
		var mu sync.Mutex
		deliveries := map[string]uint64{}
		second := consume(ctx, natstest.Connect(GinkgoTB(), s),
			fetcher, acking(func(_ context.Context, m *pipeline.Delivery) {
				defer GinkgoRecover()
				mu.Lock()
				defer mu.Unlock()
				deliveries[m.Subject()] = m.NumDelivered()
			}))
		Eventually(second.handled, soon).Should(HaveLen(16), "AckWait is 30 s")
		Expect(second.handled()).NotTo(ContainElements(first.begun()))
		Expect(deliveries).To(HaveEach(BeNumerically("<=", 2)), "a returned message must not go back to the same client")
		Expect(first.done).NotTo(BeClosed(), "it waits for handlers in progress")

		close(finish)
		Eventually(first.done).Should(BeClosed())
		Expect(first.handled()).To(HaveLen(4))
		Expect(cancelled.Load()).To(BeFalse())
		Eventually(func() int { return outstanding(ctx, js) }).Should(BeZero())
		Consistently(second.handled, 300*time.Millisecond).Should(HaveLen(16))
	})

	It("treats a paused consumer like one without messages", func(ctx SpecContext) {
		_, js, _ := natstest.Ensured(GinkgoTB(), pipeline.Topology{})
		r := consume(ctx, js, fetcher, always(pipeline.Ack()))
		Eventually(r.states).Should(HaveLen(1))
		must(js.PauseConsumer(ctx, pipeline.Requests, pipeline.FetcherConsumer, time.Now().Add(time.Hour)))
		publishWants(ctx, pipeline.NewClient(js), 1, 10)
		Consistently(r.handled, 3*time.Second).Should(BeEmpty())
		must(js.ResumeConsumer(ctx, pipeline.Requests, pipeline.FetcherConsumer))
		Eventually(r.handled).Should(HaveLen(1))
		Expect(r.states()).To(HaveLen(1))
	})

	It("continues soon after a request for messages was lost, and does not report that", func(ctx SpecContext) {
		s, js, _ := natstest.Ensured(GinkgoTB(), pipeline.Topology{})
		must(js.Conn().Subscribe(lostRequests+">", func(*nats.Msg) {})) // otherwise the server reports the loss
		publishWants(ctx, pipeline.NewClient(js), 20, 10)
		broken := &losing{server: s, lost: 2}
		r := consume(ctx, natstest.Connect(GinkgoTB(), s, nats.InProcessServer(broken)), fetcher, always(pipeline.Ack()))
		Eventually(r.handled, 5*time.Second).Should(HaveLen(20))
		Expect(broken.requests.Load()).To(BeNumerically(">", broken.lost))
		Expect(r.states()).To(HaveExactElements(BeNil()))
	})

	It("ends while the server is unavailable", func(ctx SpecContext) {
		s, js, _ := natstest.Ensured(GinkgoTB(), pipeline.Topology{})
		stopping, stop := context.WithCancel(ctx)
		r := consume(stopping, js, fetcher, always(pipeline.Ack()))
		Eventually(r.states).Should(HaveLen(1))
		s.Stop()
		stop()
		Eventually(r.done, soon).Should(BeClosed())
	})

	It("loses no message while all slots are busy for longer than the heartbeat interval", func(ctx SpecContext) {
		s, _, _ := natstest.Ensured(GinkgoTB(), pipeline.Topology{})
		var faults atomic.Int32
		js := natstest.Connect(GinkgoTB(), s,
			nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) { faults.Add(1) }))
		c := pipeline.NewClient(js)
		finish := make(chan struct{})
		r := consume(ctx, js, fetcher,
			acking(func(context.Context, *pipeline.Delivery) { <-finish }))
		publishWants(ctx, c, 4, 10)
		Eventually(r.begun).Should(HaveLen(4))
		wait(ctx, 4*time.Second) // heartbeats and the end of a request arrive

		for n := range 4 {
			must(c.PublishWant(ctx, natstest.Want(natstest.Numbered(10+n), "https://a.example"), 0))
		}
		Eventually(func() int { return outstanding(ctx, js) }).Should(BeNumerically(">", 4))
		close(finish)
		Eventually(r.handled, soon).Should(HaveLen(8), "AckWait is 30 s")
		Expect(faults.Load()).To(BeZero())
	})
})

const requests, lostRequests = "$JS.API.CONSUMER.MSG.NEXT.", "$JS.API.CONSUMER.MSG.LOST."

// losing is a connection that loses the request for messages with number lost.
type losing struct {
	net.Conn
	server   *natstest.Server
	lost     int32
	requests atomic.Int32
}

func (l *losing) InProcessConn() (conn net.Conn, err error) {
	l.Conn, err = l.server.InProcessConn()
	return l, err
}

func (l *losing) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(requests)) && l.requests.Add(1) == l.lost {
		b = bytes.Replace(b, []byte(requests), []byte(lostRequests), 1)
	}
	return l.Conn.Write(b)
}

// outstanding returns the number of unacknowledged messages of the fetchers.
func outstanding(ctx context.Context, js jetstream.JetStream) int {
	GinkgoHelper()
	c := must(js.Consumer(ctx, pipeline.Requests, pipeline.FetcherConsumer))
	return c.CachedInfo().NumAckPending
}

// raise sets most to n if n is larger.
func raise(most *atomic.Int32, n int32) {
	for old := most.Load(); n > old; old = most.Load() {
		if most.CompareAndSwap(old, n) {
			return
		}
	}
}

// wait waits for d, or until ctx is done.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// traceparent of a sampled span, as in the examples of W3C Trace Context.
const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

var _ = Describe("Trace context", func() {
	It("is published in headers with the names of W3C, if there is any", func(ctx SpecContext) {
		js, c := ensured()
		traced := trace.ContextWithRemoteSpanContext(ctx, pipeline.ParseTraceparent(traceparent))
		seq := must(c.PublishWant(traced, natstest.Want(key, "https://a.example"), 0))
		Expect(last(ctx, js, key.Want()).Header).To(HaveKeyWithValue("traceparent", []string{traceparent}))
		must(c.PublishWant(ctx, natstest.Want(key, "https://b.example"), seq))
		Expect(last(ctx, js, key.Want()).Header).NotTo(HaveKey("traceparent"))
	})

	It("passes from a timer to its due", func(ctx SpecContext) {
		js, c := ensured()
		due := natstest.Due(GinkgoTB(), js, key)
		state := must(trace.ParseTraceState("vendor=opaque"))
		span := pipeline.ParseTraceparent(traceparent).WithTraceState(state)
		must(c.SetTimer(trace.ContextWithSpanContext(ctx, span), due, time.Now().Add(300*time.Millisecond)))
		header := fired(ctx, js, key).Header
		Expect(header).To(HaveKeyWithValue("traceparent", []string{traceparent}))
		Expect(header).To(HaveKeyWithValue("tracestate", []string{"vendor=opaque"}))
		Expect(trace.SpanContextFromContext(pipeline.ContextWithTrace(ctx, header)).TraceState()).To(Equal(state))
	})

	It("drops a long tracestate, which would take the room of the body", func(ctx SpecContext) {
		_, js, _ := natstest.Ensured(GinkgoTB(), pipeline.Topology{})
		state := must(trace.ParseTraceState("a=" + strings.Repeat("x", 250) + ",b=" + strings.Repeat("y", 250)))
		span := trace.ContextWithSpanContext(ctx, pipeline.ParseTraceparent(traceparent).WithTraceState(state))
		must(pipeline.NewClient(js).PublishWant(span, natstest.Want(key, "https://a.example"), 0))
		header := last(ctx, js, key.Want()).Header
		Expect(header).To(HaveKey("traceparent"))
		Expect(header).NotTo(HaveKey("tracestate"))
	})
})

func TestTraceparentRoundTrip(t *testing.T) {
	if have := pipeline.Traceparent(pipeline.ParseTraceparent(traceparent)); have != traceparent {
		t.Errorf("have %q", have)
	}
	for _, text := range []string{
		"", "nonsense", "00-00000000000000000000000000000000-b7ad6b7169203331-01",
		traceparent[:50],
	} {
		if span := pipeline.ParseTraceparent(text); span.IsValid() {
			t.Errorf("%q gives %v", text, span)
		}
	}
	if have := pipeline.Traceparent(trace.SpanContext{}); have != "" {
		t.Errorf("an invalid span context gives %q", have)
	}
}

func TestContextWithoutTraceCostsNothing(t *testing.T) {
	header := nats.Header{"Nats-Msg-Id": {"1"}, "Traceparent": {traceparent}} // the spelling of HTTP, not ours
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() { _ = pipeline.ContextWithTrace(ctx, header) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if trace.SpanContextFromContext(pipeline.ContextWithTrace(ctx, header)).IsValid() {
		t.Error("a header in another case was read")
	}
}
