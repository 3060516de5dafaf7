package doctor

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/natsconn"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/overview"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/readable"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/operate"
)

// Finding of the doctor, as programs read it.
type Finding struct {
	Check  string `json:"check"`
	State  string `json:"state"`
	Detail string `json:"detail"`
	Mend   string `json:"mend,omitempty"`
}

// States of findings.
const (
	OK      = "ok"
	Warning = "warning"
	Bad     = "bad"
	Unknown = "unknown"
)

// Options are how to examine.
type Options struct {
	// System is how to reach the system account, which alone may read
	// sync_interval; nil: it is not read.
	System *natsconn.Options
	// Now is the clock.
	Now func() time.Time
}

// Examine tests connection, permissions, clock, streams, consumers and timers.
// The error is the cause for which ctx has ended.
func Examine(ctx context.Context, conn *natsconn.Connection, o Options) ([]Finding, error) {
	d := &diagnosis{Connection: conn, system: o.System, now: o.Now, keys: -1}
	for _, examine := range []func(context.Context){
		d.server, d.permissions, d.streams, d.audit, d.replicas, d.sync, d.consumers, d.timers, d.wants, d.memory,
	} {
		examine(ctx)
		if err := context.Cause(ctx); err != nil {
			return d.findings, err
		}
	}
	return d.findings, nil
}

type diagnosis struct {
	*natsconn.Connection
	system   *natsconn.Options
	now      func() time.Time
	findings []Finding
	// memoryLimit is that of the server; 0: unknown.
	memoryLimit int64
	// keys are those that are wanted; -1: unknown.
	keys int
}

func (d *diagnosis) add(check, state, mend, format string, args ...any) {
	d.findings = append(d.findings, Finding{Check: check, State: state, Mend: mend, Detail: fmt.Sprintf(format, args...)})
}

// slowLink and WrongClock, between the server's clock and this one, are what an
// operator should know of.
const (
	slowLink   = 250 * time.Millisecond
	WrongClock = 2 * time.Second
)

// server tests the connection, the version and the clock.
func (d *diagnosis) server(ctx context.Context) {
	trip, err := d.Conn.RTT()
	switch {
	case err != nil:
		d.add("connection", Bad, "look after the network and the server", "%s does not answer: %s", d.Where, err)
		return
	case trip > slowLink:
		d.add("connection", Warning, "run curlctl nearer to the server", "%s answers after %s", d.Where, trip.Round(time.Millisecond))
	default:
		d.add("connection", OK, "", "%s answers within %s", d.Where, slowLink)
	}
	if !d.Conn.HeadersSupported() || older(d.Conn.ConnectedServerVersion(), 2, 12) {
		d.add("version", Bad, "upgrade NATS to 2.12 or newer, which schedules messages", "NATS %s", d.Conn.ConnectedServerVersion())
	} else {
		d.add("version", OK, "", "NATS schedules messages")
	}
	before := time.Now()
	stream, err := d.JetStream.Stream(ctx, pipeline.Requests)
	if err != nil {
		return // reported by streams
	}
	off := stream.CachedInfo().TimeStamp.Sub(before.Add(time.Since(before) / 2))
	if off.Abs() > WrongClock {
		d.add("clock", Warning, "synchronize the clocks (NTP); timers follow the server's", "the server's clock is off by %s from this one", off.Round(time.Millisecond))
		return
	}
	d.add("clock", OK, "", "the server's clock agrees with this one")
}

// older reports whether the first two numbers of a version are less than two others.
func older(version string, major, minor int) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return true
	}
	a, errA := strconv.Atoi(parts[0])
	b, errB := strconv.Atoi(parts[1])
	return errA != nil || errB != nil || a < major || a == major && b < minor
}

// permissions checks what this identity may do, as far as the server reports it.
func (d *diagnosis) permissions(ctx context.Context) {
	user, err := d.User(ctx)
	if err != nil {
		d.add("permissions", Unknown, "let this user publish $SYS.REQ.USER.INFO", "%s", err)
		return
	}
	var may []string
	for _, identity := range Identities() {
		missing := identity.Missing(user, d.Client.APIPrefix())
		if len(missing) == 0 {
			may = append(may, identity.Name)
			continue
		}
		if identity.Name == Viewer {
			d.add("permissions", Bad, "give it what README.md lists for "+Viewer, "user %s may not use %s", user.Name, strings.Join(missing, ", "))
			return
		}
	}
	d.add("permissions", OK, "", "user %s has what these identities need: %s", user.Name, strings.Join(may, ", "))
}

// streams compares streams and consumers with what this version needs.
func (d *diagnosis) streams(ctx context.Context) {
	differ, err := pipeline.Compare(ctx, d.JetStream, pipeline.Topology{})
	if err != nil {
		d.add("streams", Unknown, "", "%s", err)
		return
	}
	for _, difference := range differ {
		d.add("streams", Bad, "run `curlctl setup`", "%s", difference)
	}
	if len(differ) == 0 {
		d.add("streams", OK, "", "streams and consumers are as this version needs them")
	}
}

// auditNearFull is from which part of its limit on the record of operators is nearly full.
const auditNearFull = 0.8

// audit looks whether there is room for what operators do: without it they can do
// nothing.
func (d *diagnosis) audit(ctx context.Context) {
	stream, err := d.JetStream.Stream(ctx, pipeline.Audit)
	if err != nil {
		return // reported by streams
	}
	info := stream.CachedInfo()
	const mend = "find out by `curlctl audit` who fills it; `curlctl setup --max-audit-bytes` makes room"
	switch used := float64(info.State.Bytes) / float64(max(info.Config.MaxBytes, 1)); {
	case info.Config.MaxBytes <= 0 || used < auditNearFull:
		d.add("audit", OK, "", "there is room for the record of what operators do")
	case int64(info.State.Bytes)+int64(info.Config.MaxMsgSize) > info.Config.MaxBytes:
		d.add("audit", Bad, mend, "the record of what operators do is full: no operator can replay, refetch, pause or purge")
	default:
		d.add("audit", Warning, mend, "the record of what operators do is full to %.0f %%; then no operator can replay, refetch, pause or purge", 100*used)
	}
}

func (d *diagnosis) replicas(ctx context.Context) {
	for _, name := range []string{pipeline.Requests, pipeline.Results, pipeline.Failures, pipeline.Audit} {
		stream, err := d.JetStream.Stream(ctx, name)
		if err != nil {
			continue
		}
		info := stream.CachedInfo()
		if info.Config.Replicas == 1 {
			d.add("replicas", Warning, "on a cluster, run `curlctl setup --replicas 3`", "%s has one replica: a lost server loses it", name)
			continue
		}
		state := OK
		for _, peer := range info.Cluster.Replicas {
			if peer.Offline || !peer.Current {
				state = Bad
				d.add("replicas", state, "look after that server", "replica of %s on %s is behind or offline", name, peer.Name)
			}
		}
		if state == OK {
			d.add("replicas", OK, "", "%s has %d replicas", name, info.Config.Replicas)
		}
	}
}

// sync reads how soon the server writes to disk, which only the system account
// may know.
func (d *diagnosis) sync(ctx context.Context) {
	if d.system == nil {
		d.add("sync_interval", Unknown, "give --system-context, or see that jetstream.sync_interval is always where replicas may lose power together",
			"only the system account may read it")
		return
	}
	conn, _, err := d.system.Open(ctx)
	if err != nil {
		d.add("sync_interval", Unknown, "", "%s", err)
		return
	}
	defer conn.Close()
	server, err := askServer(ctx, conn.Conn)
	d.memoryLimit = server.MemoryLimit
	switch {
	case err != nil:
		d.add("sync_interval", Unknown, "give a context of the system account", "%s", err)
	case server.JetStream.Config.Always:
		d.add("sync_interval", OK, "", "every write is on disk before it is acknowledged")
	default:
		d.add("sync_interval", Warning, "set jetstream.sync_interval to always, or run three replicas in different zones",
			"writes reach the disk after up to %s: a power failure may lose the history of failures", server.JetStream.Config.Interval)
	}
}

func (d *diagnosis) consumers(ctx context.Context) {
	for _, c := range []struct{ stream, name, service string }{
		{pipeline.Requests, pipeline.FetcherConsumer, "fetcher"}, {pipeline.Results, pipeline.WriterConsumer, "writer"},
	} {
		consumer, err := d.JetStream.Consumer(ctx, c.stream, c.name)
		if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
			continue // reported by streams
		}
		if err != nil {
			d.add("consumer "+c.name, Unknown, "", "%s", err)
			continue
		}
		info := consumer.CachedInfo()
		switch {
		case info.Paused:
			d.add("consumer "+c.name, Warning, "run `curlctl resume` when fetching may go on", "it is paused, %s waiting", printer.Plural(int(info.NumPending), "message"))
		case info.NumWaiting == 0 && info.NumAckPending == 0:
			d.add("consumer "+c.name, Bad, "start a "+c.service+", or look at its log", "no %s reads from it, %s waiting", c.service, printer.Plural(int(info.NumPending), "message"))
		case info.NumAckPending >= info.Config.MaxAckPending:
			d.add("consumer "+c.name, Bad, "look at the log of the "+c.service, "%s are in work, which is all that may be", printer.Grouped(info.NumAckPending))
		default:
			d.add("consumer "+c.name, OK, "", "%s waiting, %s in work", printer.Plural(int(info.NumPending), "message"), printer.Grouped(info.NumAckPending))
		}
	}
}

// count calls each with what can be read, and returns how much cannot; without read,
// the stream could not be read to its end, which is a finding of the check.
func count[T any](d *diagnosis, check string, all iter.Seq2[T, error], each func(T)) (unread int, read bool) {
	var left readable.Unread
	for one, err := range readable.Only(&left, all) {
		if err != nil {
			if !errors.Is(err, jetstream.ErrStreamNotFound) { // reported by streams
				d.add(check, Unknown, "", "%s", err)
			}
			return 0, false
		}
		each(one)
	}
	unread, _ = left.Count()
	return unread, true
}

func (d *diagnosis) timers(ctx context.Context) {
	pending, late := 0, 0
	unread, read := count(d, "timers", d.Client.Timers(ctx, "", ""), func(t operate.Timer) {
		pending++
		if overview.Overdue(d.now(), t.At) {
			late++
		}
	})
	if !read {
		return
	}
	if unread > 0 {
		d.add("timers", Bad, "find out who else publishes to CURL_REQUESTS; `curlctl refetch --all` replaces the timers", "%s cannot be read", printer.Plural(unread, "timer"))
		return
	}
	if late > 0 {
		d.add("timers", Bad, "restart the leader of CURL_REQUESTS (`nats stream cluster step-down CURL_REQUESTS`); `curlctl refetch --all` replaces the timers",
			"%s of %d should have fired", printer.Plural(late, "timer"), pending)
		return
	}
	d.add("timers", OK, "", "%s, none overdue", printer.Plural(pending, "timer"))
}

// wants looks for those that cannot be read, so that no service acts on them.
func (d *diagnosis) wants(ctx context.Context) {
	wanted := 0
	unread, read := count(d, "wants", d.Client.Wants(ctx, "", ""), func(operate.Want) { wanted++ })
	if !read {
		return
	}
	if unread > 0 {
		d.add("wants", Bad, "find out who else publishes to CURL_REQUESTS; restart the watcher, which replaces them", "%s cannot be read", printer.Plural(unread, "want"))
		return
	}
	d.keys = wanted
	d.add("wants", OK, "", "%s", printer.Plural(wanted, "key"))
}

// memory compares what the server may take with what it needs for all keys.
func (d *diagnosis) memory(context.Context) {
	if d.keys < 0 {
		return // reported by wants
	}
	needed := memoryFor(d.keys) >> 20
	if d.memoryLimit == 0 {
		d.add("memory", Unknown, "give --system-context, and NATS a GOMEMLIMIT, or see that it may take as much",
			"%s need up to %d MiB of NATS, when it was away while all timers came due", printer.Plural(d.keys, "key"), needed)
		return
	}
	carries := carries(d.memoryLimit)
	if d.keys > carries {
		d.add("memory", Warning, "raise the memory limit of NATS and its GOMEMLIMIT (the chart's nats.bundled.expectedKeys)",
			"that of NATS carries %s keys, and there are %s: it may be ended for want of memory when it was away while all timers came due",
			printer.Grouped(carries), printer.Grouped(d.keys))
		return
	}
	d.add("memory", OK, "", "that of NATS carries %s keys", printer.Grouped(carries))
}
