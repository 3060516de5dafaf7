package doctor

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/natsconn"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	"github.com/kv8s/curl-me-that/proto/keystate"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// Finding is the result of a check.
type Finding struct {
	Check  string `json:"check"`
	State  string `json:"state"`
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"`
}

// States of findings.
const (
	OK      = "ok"
	Warning = "warning"
	Bad     = "bad"
	Unknown = "unknown"
)

// Examine checks connection, permissions, clock, streams, consumers, timers and wants. The error is the cause
// of ctx, if it ended early.
func Examine(ctx context.Context, conn *natsconn.Connection, now func() time.Time) ([]Finding, error) {
	d := &diagnosis{Connection: conn, now: now}
	for _, examine := range []func(context.Context){
		d.server, d.permissions, d.streams, d.replicas, d.consumers, d.timers, d.wants,
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
	now      func() time.Time
	findings []Finding
}

func (d *diagnosis) add(check, state, fix, format string, args ...any) {
	d.findings = append(d.findings, Finding{Check: check, State: state, Fix: fix, Detail: fmt.Sprintf(format, args...)})
}

const (
	// slowLink is the maximum round trip to the server without a warning.
	slowLink = 250 * time.Millisecond
	// wrongClock is the maximum clock difference to the server without a warning.
	wrongClock = 2 * time.Second
)

// server checks the connection, the version and the clock.
func (d *diagnosis) server(ctx context.Context) {
	trip, err := d.Conn.RTT()
	switch {
	case err != nil:
		d.add("connection", Bad, "check the network and the server", "%s does not respond: %s", d.Where, err)
		return
	case trip > slowLink:
		d.add("connection", Warning, "run curlctl closer to the server", "%s takes %s to respond", d.Where,
			trip.Round(time.Millisecond))
	default:
		d.add("connection", OK, "", "%s responds within %s", d.Where, slowLink)
	}
	if flaw := pipeline.ServerFlaw(d.Conn.ConnectedServerVersion()); flaw != "" {
		d.add("version", Bad, "upgrade all servers, one after the other", "%s", flaw)
	} else {
		d.add("version", OK, "", "NATS is %s or newer", pipeline.MinServer)
	}
	before := time.Now()
	stream, err := d.JetStream.Stream(ctx, pipeline.Requests)
	if err != nil {
		return // reported by streams
	}
	off := stream.CachedInfo().TimeStamp.Sub(before.Add(time.Since(before) / 2))
	if off.Abs() > wrongClock {
		d.add("clock", Warning, "synchronize the clocks (NTP), because timers follow the server's clock",
			"the server's clock differs by %s from this one", off.Round(time.Millisecond))
		return
	}
	d.add("clock", OK, "", "the server's clock agrees with this one")
}

// permissions compares the permissions of this user with those of the identities.
func (d *diagnosis) permissions(ctx context.Context) {
	user, err := d.User(ctx)
	if err != nil {
		d.add("permissions", Unknown, "allow this user to publish $SYS.REQ.USER.INFO", "%s", err)
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
			d.add("permissions", Bad, "grant the permissions that deploy/nats/accounts.conf has for "+Viewer,
				"user %s may not use %s", user.Name, strings.Join(missing, ", "))
			return
		}
	}
	d.add("permissions", OK, "", "user %s has the permissions of %s", user.Name, strings.Join(may, ", "))
}

// streams compares streams and consumers with the configuration of this version.
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
		d.add("streams", OK, "", "streams and consumers are up to date")
	}
}

func (d *diagnosis) replicas(ctx context.Context) {
	var single []string
	for _, name := range []string{pipeline.Requests, pipeline.Results, pipeline.Failures} {
		stream, err := d.JetStream.Stream(ctx, name)
		if err != nil {
			continue
		}
		info := stream.CachedInfo()
		if info.Config.Replicas == 1 {
			single = append(single, name)
			continue
		}
		state := OK
		for _, peer := range info.Cluster.Replicas {
			if peer.Offline || !peer.Current {
				state = Bad
				d.add("replicas", state, "check that server", "the replica of %s on %s is behind or offline", name, peer.Name)
			}
		}
		if state == OK {
			d.add("replicas", OK, "", "%s has %d replicas", name, info.Config.Replicas)
		}
	}
	switch clustered := d.Conn.ConnectedClusterName() != ""; {
	case len(single) > 0 && !clustered:
		d.add("replicas", OK, "", "one replica each, because NATS has one server")
	case len(single) > 0:
		d.add("replicas", Warning, "on a cluster, run `curlctl setup --replicas 3`",
			"one replica, lost with its server: %s", strings.Join(single, ", "))
	}
}

func (d *diagnosis) consumers(ctx context.Context) {
	for _, c := range []struct{ stream, name, service string }{
		{pipeline.Requests, pipeline.FetcherConsumer, "fetcher"}, {pipeline.Results, pipeline.WriterConsumer, "writer"},
	} {
		check := "consumer " + c.name
		consumer, err := d.JetStream.Consumer(ctx, c.stream, c.name)
		if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
			continue // reported by streams
		}
		if err != nil {
			d.add(check, Unknown, "", "%s", err)
			continue
		}
		info := consumer.CachedInfo()
		waiting, inFlight := printer.Plural(int(info.NumPending), "message"), printer.Grouped(info.NumAckPending)
		switch {
		case info.Paused:
			d.add(check, Warning, "run `curlctl resume` to resume fetching", "paused, %s waiting", waiting)
		case info.NumWaiting == 0 && info.NumAckPending == 0:
			d.add(check, Bad, "start a "+c.service+", or check its log", "no %s reads from it, %s waiting", c.service, waiting)
		case info.NumAckPending >= info.Config.MaxAckPending:
			d.add(check, Bad, "check the log of the "+c.service, "%s in flight, which is the limit", inFlight)
		default:
			d.add(check, OK, "", "%s waiting, %s in flight", waiting, inFlight)
		}
	}
}

// count visits all readable messages. It returns false on error, or if it added a finding about unreadable ones.
func count[T any](
	d *diagnosis, check, fix string, read func(*operate.Client) iter.Seq2[T, error], visit func(T),
) (ok bool) {
	client := d.Client.Counting()
	for one, err := range read(client) {
		if err != nil {
			if !errors.Is(err, jetstream.ErrStreamNotFound) { // reported by streams
				d.add(check, Unknown, "", "%s", err)
			}
			return false
		}
		visit(one)
	}
	if n, _ := client.Unread.Count(); n > 0 {
		d.add(check, Bad, "find out which other client publishes to CURL_REQUESTS, then "+fix, "%s unreadable",
			printer.Plural(n, "message"))
		return false
	}
	return true
}

func (d *diagnosis) timers(ctx context.Context) {
	const replace = "replace the timers with `curlctl refetch --all`"
	pending, late := 0, 0
	read := func(c *operate.Client) iter.Seq2[operate.Timer, error] { return c.Timers(ctx, "", "") }
	ok := count(d, "timers", replace, read, func(t operate.Timer) {
		pending++
		if keystate.IsOverdue(d.now(), t.At) {
			late++
		}
	})
	switch {
	case !ok:
	case late > 0:
		d.add(
			"timers", Bad, "restart the leader of CURL_REQUESTS (`nats stream cluster step-down CURL_REQUESTS`), then "+replace,
			"%s of %d overdue", printer.Plural(late, "timer"), pending)
	default:
		d.add("timers", OK, "", "%s, none overdue", printer.Plural(pending, "timer"))
	}
}

// wants looks for unreadable wants, which the services ignore.
func (d *diagnosis) wants(ctx context.Context) {
	wanted := 0
	restart := "restart the watcher, which replaces the wants"
	read := func(c *operate.Client) iter.Seq2[operate.Want, error] { return c.Wants(ctx, "", "") }
	if count(d, "wants", restart, read, func(operate.Want) { wanted++ }) {
		d.add("wants", OK, "", "%s", printer.Plural(wanted, "key"))
	}
}
