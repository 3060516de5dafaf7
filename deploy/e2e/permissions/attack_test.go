package permissions_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// target is a subject on which the server itself must never publish a reply, with a harmful payload. If payload
// is empty, any message would be harmful.
type target struct{ subject, payload string }

// targets returns the reply subjects to try. Their payloads are stored in messages first, if the identity may
// publish any.
func targets(inbox, victim string) []target {
	all := []target{
		{subject: victim},
		{subject: "curl.want.default.canary.key"},
		{subject: "curl.result.sync.default.canary.key"},
		{"$JS.API.STREAM.CREATE.EVIL", `{"name":"EVIL","subjects":["evil.>"]}`},
		{"$JS.API.STREAM.UPDATE.CURL_FAILURES", `{"name":"CURL_FAILURES","subjects":["curl.failure.>"],"max_msgs":1}`},
		{"$JS.API.CONSUMER.CREATE.CURL_FAILURES.intruder", `{"stream_name":"CURL_FAILURES","action":"create",` +
			`"config":{"name":"intruder","deliver_subject":"` + inbox +
			`","deliver_policy":"all","ack_policy":"none","replay_policy":"instant"}}`},
		{"$JS.API.CONSUMER.PAUSE.CURL_RESULTS.writer", `{"pause_until":"2100-01-01T00:00:00Z"}`},
		{"$JS.API.CONSUMER.RESET.CURL_REQUESTS.fetcher", `{"seq":1}`},
		{"$JS.API.STREAM.MSG.DELETE.CURL_RESULTS", `{"seq":1}`},
		{"$JS.API.STREAM.SNAPSHOT.CURL_FAILURES", `{"deliver_subject":"` + inbox + `"}`},
		{subject: "$JS.API.CONSUMER.DELETE.CURL_REQUESTS.fetcher"},
		{subject: "$JS.API.CONSUMER.DELETE.CURL_RESULTS.writer"},
		{subject: "$JS.ACK.CURL_RESULTS.writer.1.1.1.1.0"},
		{subject: "$JS.ACK.CURL_REQUESTS.fetcher.1.1.1.1.0"},
	}
	for _, stream := range []string{pipeline.Requests, pipeline.Results, pipeline.DeadLetters, pipeline.History} {
		all = append(all, target{subject: "$JS.API.STREAM.PURGE." + stream},
			target{subject: "$JS.API.STREAM.DELETE." + stream})
	}
	return all
}

// secrets are markers in stored messages. A marker in its inbox shows what the identity could read.
var secrets = map[string]string{
	"SECRET-BODY": "bodies", "SECRET-LETTER": "dead letters", "SECRET-TIMER": "timers",
}

// attacker is a compromised identity, with the data to protect from it.
type attacker struct {
	b        *broker
	js       jetstream.JetStream
	identity string
	inbox    string
	nc       *nats.Conn
	may      []string

	mu   sync.Mutex
	read map[string]bool
	// forged counts the messages in the inbox of another identity.
	forged int
}

// newAttacker fills the streams and connects as an identity.
func newAttacker(ctx context.Context, b *broker, identity string) *attacker {
	GinkgoHelper()
	s := &attacker{b: b, js: b.jetStream(), identity: identity, read: map[string]bool{}}
	for _, c := range cells() {
		if c.identity == identity && c.operation == "publish" && c.may {
			s.may = append(s.may, c.subject)
		}
	}
	s.nc = b.connect(identity)
	s.inbox = s.nc.NewInbox()
	prefix := s.inbox[:strings.LastIndex(s.inbox, ".")]
	suitetest.Must(s.nc.Subscribe(prefix+".>", s.take))
	victim := b.connectTo(b.url(1), s.victim())
	suitetest.Must(victim.Subscribe("_INBOX_"+s.victim()+".victim", func(*nats.Msg) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.forged++
	}))
	Expect(victim.Flush()).To(Succeed())
	s.restore(ctx)
	return s
}

// victim returns an identity that is not compromised.
func (a *attacker) victim() string {
	if a.identity == "writer" {
		return "fetcher"
	}
	return "writer"
}

func (a *attacker) take(m *nats.Msg) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for secret, what := range secrets {
		if strings.Contains(string(m.Data), secret) {
			a.read[what] = true
		}
	}
}

// restore restores the state before the first attack.
func (a *attacker) restore(ctx context.Context) {
	GinkgoHelper()
	// This also waits until the server has handled all requests of the attacker.
	Eventually(ctx, a.fill).WithTimeout(recreateTimeout).Should(Succeed())
	a.plant(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forged, a.read = 0, map[string]bool{}
}

// fill recreates the streams, with the data to protect.
func (a *attacker) fill(ctx context.Context) error {
	for name := range a.js.StreamNames(ctx).Name() {
		if err := a.js.DeleteStream(ctx, name); err != nil {
			return err
		}
	}
	if _, err := pipeline.Ensure(ctx, a.js, a.b.topology()); err != nil {
		return err
	}
	for _, m := range []struct{ subject, data string }{
		{"curl.result.content.default.canary.key", "SECRET-BODY"},
		{"curl.want.default.canary.key", "a want"},
		{"curl.failure.Timeout.host.default.canary.key", "SECRET-LETTER"},
	} {
		if _, err := a.js.Publish(ctx, m.subject, []byte(m.data)); err != nil {
			return err
		}
	}
	m := nats.NewMsg("curl.timer.default.canary.key")
	m.Data = []byte("SECRET-TIMER")
	m.Header.Set("Nats-Schedule", "@at "+time.Now().Add(time.Hour).UTC().Format(time.RFC3339Nano))
	m.Header.Set("Nats-Schedule-Target", "curl.due.default.canary.key")
	_, err := a.js.PublishMsg(ctx, m)
	return err
}

// planted returns the subject with the payload for target i.
func planted(kind string, i int) string { return kind + "default.planted-" + strconv.Itoa(i) + ".key" }

// plant stores the payloads of the targets on every subject that the identity may publish to. With a timer, it
// also makes NATS publish them as wants.
func (a *attacker) plant(ctx context.Context) {
	GinkgoHelper()
	forges := false
	for i, t := range targets(a.inbox, a.victimInbox()) {
		for _, subject := range a.may {
			kind, ok := strings.CutSuffix(subject, "default.cm.key")
			if !ok || strings.HasPrefix(subject, "$") {
				continue
			}
			m := nats.NewMsg(planted(kind, i))
			m.Data = []byte(t.payload)
			if kind == "curl.timer." {
				forges = true
				m.Header.Set("Nats-Schedule", "@at "+time.Now().UTC().Format(time.RFC3339Nano))
				m.Header.Set("Nats-Schedule-Target", planted("curl.want.", i))
			}
			Expect(a.nc.PublishMsg(m)).To(Succeed())
		}
	}
	Expect(a.nc.Flush()).To(Succeed())
	if !forges {
		return
	}
	Eventually(ctx, func() error {
		stream, err := a.js.Stream(ctx, pipeline.Requests)
		if err == nil {
			_, err = stream.GetLastMsgForSubject(ctx, planted("curl.want.", len(targets("", ""))-1))
		}
		return err
	}).WithTimeout(recreateTimeout).Should(Succeed(), "the last planted want")
}

func (a *attacker) victimInbox() string { return "_INBOX_" + a.victim() + ".victim" }

// requestsFor returns the payloads of requests to a subject. Responses are the i-th planted payload, an empty
// message, an error and a message.
func (a *attacker) requestsFor(subject, reply string, i int) []string {
	filter := planted("curl.want.", i)
	switch {
	case strings.HasPrefix(subject, "$JS.API.DIRECT.GET.") && strings.Count(subject, ".") == 4:
		return []string{
			`{"last_by_subj":"curl.want.default.none.key"}`,
			`{"last_by_subj":"` + filter + `"}`,
			`{"last_by_subj":"` + planted("curl.failure.Timeout.host.", i) + `"}`,
			`{"seq":1,"batch":2}`,
			`{"seq":1}`,
		}
	case strings.HasPrefix(subject, "$JS.ACK."):
		return []string{"", `+NXT {"batch":100,"expires":20000000}`, "-NAK", "+TERM"}
	case strings.HasPrefix(subject, "$JS.API.CONSUMER.MSG.NEXT."):
		return []string{`{"batch":1,"no_wait":true}`, `{"batch":100,"expires":20000000}`}
	case strings.HasPrefix(subject, "$JS.API.CONSUMER.CREATE.CURL_REQUESTS.loader."):
		return []string{`{"stream_name":"CURL_REQUESTS","config":{"name":"loader","deliver_subject":"` + reply +
			`","deliver_policy":"last_per_subject","ack_policy":"none","replay_policy":"instant","filter_subject":"` +
			strings.TrimPrefix(subject, "$JS.API.CONSUMER.CREATE.CURL_REQUESTS.loader.") +
			`","inactive_threshold":1000000000,"mem_storage":true}}`}
	case strings.HasPrefix(subject, "$JS.API.CONSUMER.CREATE."):
		parts := strings.Split(subject, ".")
		return []string{`{"stream_name":"` + parts[4] + `","config":{"durable_name":"` + parts[5] + `","name":"` + parts[5] +
			`","ack_policy":"explicit","deliver_policy":"all","replay_policy":"instant","max_deliver":1,` +
			`"inactive_threshold":1000000}}`}
	case strings.HasPrefix(subject, "$JS.API.STREAM.CREATE."):
		name := strings.TrimPrefix(subject, "$JS.API.STREAM.CREATE.")
		return []string{`{"name":"` + name + `","subjects":["evil"]}`}
	}
	return []string{""}
}

// literal returns the concrete subjects of a subject in the table.
func literal(subject string, i int) []string {
	if strings.HasPrefix(subject, "$JS.API.DIRECT.GET.CURL_REQUESTS.curl.want.") {
		return []string{
			"$JS.API.DIRECT.GET.CURL_REQUESTS.curl.want.default.none.key",
			"$JS.API.DIRECT.GET.CURL_REQUESTS." + planted("curl.want.", i),
		}
	}
	return []string{subject}
}

// attack sends every message that the identity may send, each with a reply subject.
func (a *attacker) attack(i int, t target) {
	GinkgoHelper()
	for _, row := range a.may {
		for _, subject := range literal(row, i) {
			for _, payload := range a.requestsFor(subject, t.subject, i) {
				Expect(a.nc.PublishRequest(subject, t.subject, []byte(payload))).To(Succeed())
			}
		}
	}
	// The response to this request comes after all others. A re-created consumer without a leader sends none.
	info := a.may[slices.IndexFunc(a.may,
		func(subject string) bool { return strings.HasPrefix(subject, "$JS.API.CONSUMER.INFO.") })]
	Eventually(func() error { return world.ErrorOf(a.nc.Request(info, nil, leaderless)) }).
		WithTimeout(recreateTimeout).Should(Succeed())
}

// see returns the state that must not change. It asks the leaders, because other replicas may lag behind.
func (a *attacker) see(ctx context.Context) map[string]string {
	GinkgoHelper()
	seen := map[string]string{}
	for name := range a.js.StreamNames(ctx).Name() {
		stream, err := a.js.Stream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) { // deleted meanwhile
			continue
		}
		Expect(err).NotTo(HaveOccurred())
		info := stream.CachedInfo()
		config := suitetest.Must(json.Marshal(info.Config))
		seen["stream "+name] = info.Created.String() + string(config)
		a.seeConsumers(ctx, stream, seen)
		for what, subject := range map[string]string{
			"want": "curl.want.default.canary.key", "timer": "curl.timer.default.canary.key",
			"body":        "curl.result.content.default.canary.key",
			"dead letter": "curl.failure.Timeout.host.default.canary.key",
			"removed":     "curl.result.sync.default.canary.key",
		} {
			if m := a.last(ctx, name, subject); m != "" {
				seen["canary "+what] = m
			}
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	seen["inbox of another"] = strconv.Itoa(a.forged)
	for what := range a.read {
		seen["read "+what] = "yes"
	}
	return seen
}

// last returns the sequence and payload of the last message of a subject, or "" without one.
func (a *attacker) last(ctx context.Context, stream, subject string) string {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(ctx, responseTimeout)
	defer cancel()
	m := suitetest.Must(a.js.Conn().RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream,
		[]byte(`{"last_by_subj":"`+subject+`"}`)))
	var answer struct {
		Message struct {
			Seq  uint64
			Data []byte
		}
		Error *struct{ Code int }
	}
	Expect(json.Unmarshal(m.Data, &answer)).To(Succeed())
	if answer.Error != nil {
		Expect(answer.Error.Code).To(Equal(404), string(m.Data))
		return ""
	}
	return fmt.Sprintf("%d %q", answer.Message.Seq, answer.Message.Data)
}

func (a *attacker) seeConsumers(ctx context.Context, stream jetstream.Stream, seen map[string]string) {
	GinkgoHelper()
	for info := range stream.ListConsumers(ctx).Info() {
		config := suitetest.Must(json.Marshal(info.Config))
		name := info.Stream + "/" + info.Name
		seen["consumer "+name] = fmt.Sprintf("%s %s %t", info.Created, config, info.Paused)
		seen["work of "+name] = fmt.Sprintf("%d %d", info.Delivered.Consumer, info.AckFloor.Consumer)
	}
}

// rows has the changes that the permissions of each identity allow, as prefixes.
var rows = map[string][]string{
	"watcher":  {"canary want", "canary timer", "canary removed", "read timers"},
	"fetcher":  {"canary timer", "canary dead letter", "canary body", "work of CURL_REQUESTS/fetcher"},
	"writer":   {"canary dead letter", "canary body", "work of CURL_RESULTS/writer", "read bodies"},
	"viewer":   {"read "},
	"replayer": {"read ", "canary timer"},
	"admin":    {"read ", "canary timer", "canary dead letter", "consumer CURL_REQUESTS/fetcher"},
	"setup":    {"stream ", "consumer ", "work of "},
}

// broken returns the changes that the row of the identity does not allow.
func (a *attacker) broken(before, after map[string]string) []string {
	return slices.DeleteFunc(changed(before, after), func(what string) bool {
		return slices.ContainsFunc(rows[a.identity], func(own string) bool { return strings.HasPrefix(what, own) })
	})
}

// changed returns the keys of all changes.
func changed(before, after map[string]string) []string {
	all := maps.Clone(before)
	maps.Copy(all, after)
	maps.DeleteFunc(all, func(what, _ string) bool {
		was, known := before[what]
		is, left := after[what]
		return was == is && known == left
	})
	return slices.Sorted(maps.Keys(all))
}

// tryAll tries all targets and returns the harm done. A late effect may count for a later target.
func (a *attacker) tryAll(ctx context.Context) []string {
	GinkgoHelper()
	var done []string
	before := a.see(ctx)
	for i, t := range targets(a.inbox, a.victimInbox()) {
		a.attack(i, t)
		after := a.see(ctx)
		if harm := a.broken(before, after); len(harm) > 0 {
			done = append(done, a.identity+" by a reply to "+t.subject+": "+strings.Join(harm, ", "))
			a.settle(ctx)
			a.restore(ctx)
			after = a.see(ctx)
		}
		before = after
	}
	if len(done) == 0 {
		Consistently(ctx, func() []string { return a.broken(before, a.see(ctx)) }).
			Should(BeEmpty(), "late effects of an attempt")
	}
	return done
}

// settle waits until the state stops changing.
func (a *attacker) settle(ctx context.Context) {
	GinkgoHelper()
	last := a.see(ctx)
	Eventually(ctx, func() []string {
		before := last
		last = a.see(ctx)
		return changed(before, last)
	}).WithTimeout(recreateTimeout).WithPolling(100 * time.Millisecond).Should(BeEmpty())
}

// reach sends every request of the identity in its proper form, because a request without a responder can do no
// harm and proves nothing.
func (a *attacker) reach(ctx context.Context) {
	GinkgoHelper()
	for _, subject := range a.may {
		if strings.HasPrefix(subject, "$JS.ACK.") {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, responseTimeout)
		m, err := a.nc.RequestWithContext(limited, subject, []byte(a.requestsFor(subject, a.inbox, 0)[0]))
		cancel()
		Expect(err).NotTo(HaveOccurred(), "%s asks %s", a.identity, subject)
		Expect(string(m.Data)).NotTo(ContainSubstring("not enabled"), "%s asks %s", a.identity, subject)
	}
	a.restore(ctx)
}

// leaderless is how long to wait for a response, which a consumer without a leader never sends.
const leaderless = 5 * time.Second

var _ = Describe("A compromised identity", func() {
	onEach(map[string]form{"on one server": plain, "on the three servers of the chart": threeOfChart}, func(
		f form, b func() *broker,
	) {
		// sys is not in the table, because it can do more by its own requests than by any reply subject or
		// header.
		for _, identity := range columns {
			It("can do no more with any reply subject than its row allows: "+identity, func(ctx SpecContext) {
				s := newAttacker(ctx, b(), identity)
				s.reach(ctx)
				Expect(s.tryAll(ctx)).To(BeEmpty())
			})

			if f.servers > 1 {
				continue // the number of servers changes who replies, not what a header does
			}
			It("can do no more with any header than the tables allow: "+identity, func(ctx SpecContext) {
				s := newAttacker(ctx, b(), identity)
				Expect(s.forgeAll(ctx)).To(ConsistOf(undeniable[identity]))
			})
		}
	})
})

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
		{"a schedule for a result", schedule("curl.result.sync.default.canary.key")},
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
func (a *attacker) forge(ctx context.Context, f forged) {
	GinkgoHelper()
	for _, row := range a.may {
		if f.stored() && !strings.HasPrefix(row, "curl.") {
			continue
		}
		m := nats.NewMsg(strings.Replace(row, "default.cm.key", "default.forged.key", 1))
		m.Header = f.header
		if f.stored() {
			limited, cancel := context.WithTimeout(ctx, responseTimeout)
			_, err := a.nc.RequestMsgWithContext(limited, m) // the response may be an error
			cancel()
			Expect(err).NotTo(HaveOccurred())
		} else {
			m.Reply = a.inbox
			Expect(a.nc.PublishMsg(m)).To(Succeed())
		}
	}
	Expect(a.nc.Flush()).To(Succeed())
	if f.header.Get("Nats-Schedule") != "" {
		a.fired(ctx)
	}
}

// fired waits until a timer of the spec has fired, and therefore all earlier ones.
func (a *attacker) fired(ctx context.Context) {
	GinkgoHelper()
	m := nats.NewMsg("curl.timer.default.last.key")
	m.Header.Set("Nats-Schedule", "@at "+time.Now().Add(300*time.Millisecond).UTC().Format(time.RFC3339Nano))
	m.Header.Set("Nats-Schedule-Target", "curl.due.default.last.key")
	before := suitetest.Must(a.js.PublishMsg(ctx, m))
	stream := suitetest.Must(a.js.Stream(ctx, pipeline.Requests))
	Eventually(ctx, stream.GetLastMsgForSubject).WithArguments("curl.due.default.last.key").WithTimeout(recreateTimeout).
		Should(HaveField("Sequence", BeNumerically(">", before.Sequence)))
}

// forgeAll tries all headers and returns the changes that they made.
func (a *attacker) forgeAll(ctx context.Context) []string {
	GinkgoHelper()
	var done []string
	before := a.see(ctx)
	for _, f := range headers() {
		a.forge(ctx, f)
		after := a.see(ctx)
		harm := a.broken(before, after)
		if f.stored() {
			harm = changed(before, after)
		}
		if len(harm) > 0 {
			done = append(done, f.name+": "+strings.Join(harm, ", "))
			a.restore(ctx)
			after = a.see(ctx)
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
