package pipeline_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

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
