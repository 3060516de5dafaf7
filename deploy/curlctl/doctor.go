package curlctl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/doctor"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/natsconn"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

func doctorCommand(o *options) *cobra.Command {
	system := natsconn.Options{Timeout: 5 * time.Second}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Test connection, permissions, clock, streams, consumers and timers, and say how to mend each",
		Args:  noArgs,
		RunE: o.run(func(ctx context.Context, s *session, _ []string) error {
			d := &diagnosis{session: s, system: system}
			for _, examine := range []func(context.Context){
				d.server, d.permissions, d.streams, d.replicas, d.sync, d.consumers, d.timers, d.wants,
			} {
				examine(ctx)
				if err := context.Cause(ctx); err != nil {
					return err
				}
			}
			return d.print()
		}),
	}
	cmd.Flags().StringVar(&system.Context, "system-context", "", "context of the nats command for the system account, to read sync_interval")
	return cmd
}

// finding of the doctor, as programs read it.
type finding struct {
	Check  string `json:"check"`
	State  string `json:"state"`
	Detail string `json:"detail"`
	Mend   string `json:"mend,omitempty"`
}

// States of findings.
const (
	stateOK      = "ok"
	stateWarning = "warning"
	stateBad     = "bad"
	stateUnknown = "unknown"
)

type diagnosis struct {
	*session
	system   natsconn.Options
	findings []finding
}

func (d *diagnosis) add(check, state, mend, format string, args ...any) {
	d.findings = append(d.findings, finding{Check: check, State: state, Mend: mend, Detail: fmt.Sprintf(format, args...)})
}

// doctorWidth is the width of the text where there is no terminal.
const doctorWidth = 100

func (d *diagnosis) print() error {
	var err error
	if d.out.ForPrograms() {
		_, err = d.out.List(nil, func(yield func(printer.Row, error) bool) {
			for _, f := range d.findings {
				if !yield(printer.Row{Name: "check/" + f.Check, Object: f}, nil) {
					return
				}
			}
		})
	} else {
		d.printText()
	}
	if err == nil && slices.ContainsFunc(d.findings, func(f finding) bool { return f.State == stateBad }) {
		return silent(exitFound)
	}
	return err
}

// printText prints the findings in lines of a bounded width: what was found
// and, below it, what to do.
func (d *diagnosis) printText() {
	colours := map[string]printer.Colour{stateOK: printer.Green, stateWarning: printer.Yellow, stateBad: printer.Red, stateUnknown: printer.Grey}
	const name, state = 16, 7
	width := doctorWidth
	if terminal := d.out.Width(); terminal > 0 {
		width = min(width, terminal)
	}
	margin := strings.Repeat(" ", name+state+4)
	for _, f := range d.findings {
		lines := printer.Wrap(f.Detail, width-len(margin))
		if f.Mend != "" {
			lines = append(lines, printer.Wrap("To mend it: "+f.Mend, width-len(margin))...)
		}
		d.out.Linef("%-*s  %s%s  %s", name, f.Check, d.out.Paint(colours[f.State], f.State), strings.Repeat(" ", state-len(f.State)), lines[0])
		for _, line := range lines[1:] {
			d.out.Linef("%s%s", margin, line)
		}
	}
}

// slowLink and wrongClock are what an operator should know of.
const (
	slowLink   = 250 * time.Millisecond
	wrongClock = 2 * time.Second
)

// server tests the connection, the version and the clock.
func (d *diagnosis) server(ctx context.Context) {
	trip, err := d.Conn.RTT()
	switch {
	case err != nil:
		d.add("connection", stateBad, "look after the network and the server", "%s does not answer: %s", d.Where, err)
		return
	case trip > slowLink:
		d.add("connection", stateWarning, "run curlctl nearer to the server", "%s answers after %s", d.Where, trip.Round(time.Millisecond))
	default:
		d.add("connection", stateOK, "", "%s answers within %s", d.Where, slowLink)
	}
	if !d.Conn.HeadersSupported() || older(d.Conn.ConnectedServerVersion(), 2, 12) {
		d.add("version", stateBad, "upgrade NATS to 2.12 or newer, which schedules messages", "NATS %s", d.Conn.ConnectedServerVersion())
	} else {
		d.add("version", stateOK, "", "NATS schedules messages")
	}
	before := time.Now()
	stream, err := d.JetStream.Stream(ctx, pipeline.Requests)
	if err != nil {
		return // reported by streams
	}
	off := stream.CachedInfo().TimeStamp.Sub(before.Add(time.Since(before) / 2))
	if off.Abs() > wrongClock {
		d.add("clock", stateWarning, "synchronize the clocks (NTP); timers follow the server's", "the server's clock is off by %s from this one", off.Round(time.Millisecond))
		return
	}
	d.add("clock", stateOK, "", "the server's clock agrees with this one")
}

// older compares the first two numbers of a version.
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
		d.add("permissions", stateUnknown, "let this user publish $SYS.REQ.USER.INFO", "%s", err)
		return
	}
	var may []string
	for _, identity := range doctor.Identities() {
		missing := identity.Missing(user, d.Client.APIPrefix())
		if len(missing) == 0 {
			may = append(may, identity.Name)
			continue
		}
		if identity.Name == doctor.Viewer {
			d.add("permissions", stateBad, "give it what README.md lists for "+doctor.Viewer, "user %s may not use %s", user.Name, strings.Join(missing, ", "))
			return
		}
	}
	d.add("permissions", stateOK, "", "user %s has what these identities need: %s", user.Name, strings.Join(may, ", "))
}

// streams compares streams and consumers with what this version needs.
func (d *diagnosis) streams(ctx context.Context) {
	differ, err := pipeline.Compare(ctx, d.JetStream, pipeline.Topology{})
	if err != nil {
		d.add("streams", stateUnknown, "", "%s", err)
		return
	}
	for _, difference := range differ {
		d.add("streams", stateBad, "run `curlctl setup`", "%s", difference)
	}
	if len(differ) == 0 {
		d.add("streams", stateOK, "", "streams and consumers are as this version needs them")
	}
}

func (d *diagnosis) replicas(ctx context.Context) {
	for _, name := range []string{pipeline.Requests, pipeline.Results, pipeline.Failures} {
		stream, err := d.JetStream.Stream(ctx, name)
		if err != nil {
			continue
		}
		info := stream.CachedInfo()
		if info.Config.Replicas == 1 {
			d.add("replicas", stateWarning, "on a cluster, run `curlctl setup --replicas 3`", "%s has one replica: a lost server loses it", name)
			continue
		}
		state := stateOK
		for _, peer := range info.Cluster.Replicas {
			if peer.Offline || !peer.Current {
				state = stateBad
				d.add("replicas", state, "look after that server", "replica of %s on %s is behind or away", name, peer.Name)
			}
		}
		if state == stateOK {
			d.add("replicas", stateOK, "", "%s has %d replicas", name, info.Config.Replicas)
		}
	}
}

// sync reads how soon the server writes to disk, which only the system account
// may know.
func (d *diagnosis) sync(ctx context.Context) {
	if d.system.Context == "" {
		d.add("sync_interval", stateUnknown, "give --system-context, or see that jetstream.sync_interval is always where replicas may lose power together",
			"only the system account may read it")
		return
	}
	conn, _, err := d.system.Open(ctx)
	if err != nil {
		d.add("sync_interval", stateUnknown, "", "%s", err)
		return
	}
	defer conn.Close()
	always, interval, err := doctor.SyncInterval(ctx, conn.Conn)
	switch {
	case err != nil:
		d.add("sync_interval", stateUnknown, "give a context of the system account", "%s", err)
	case always:
		d.add("sync_interval", stateOK, "", "every write is on disk before it is acknowledged")
	default:
		d.add("sync_interval", stateWarning, "set jetstream.sync_interval to always, or keep three replicas in different zones",
			"writes reach the disk after up to %s: a power failure may lose the history of failures", interval)
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
			d.add("consumer "+c.name, stateUnknown, "", "%s", err)
			continue
		}
		info := consumer.CachedInfo()
		switch {
		case info.Paused:
			d.add("consumer "+c.name, stateWarning, "run `curlctl resume` when fetching may go on", "it is paused, %s waiting", plural(int(info.NumPending), "message"))
		case info.NumWaiting == 0 && info.NumAckPending == 0:
			d.add("consumer "+c.name, stateBad, "start a "+c.service+", or look at its log", "no %s reads from it, %s waiting", c.service, plural(int(info.NumPending), "message"))
		case info.NumAckPending >= info.Config.MaxAckPending:
			d.add("consumer "+c.name, stateBad, "look at the log of the "+c.service, "%s are in work, which is all that may be", grouped(info.NumAckPending))
		default:
			d.add("consumer "+c.name, stateOK, "", "%s waiting, %s in work", plural(int(info.NumPending), "message"), grouped(info.NumAckPending))
		}
	}
}

func (d *diagnosis) timers(ctx context.Context) {
	pending, late, unread := 0, 0, 0
	for t, err := range d.Client.Timers(ctx, "", "") {
		if err != nil && pipeline.Unreadable(err) {
			unread++
			continue
		}
		if err != nil {
			if !errors.Is(err, jetstream.ErrStreamNotFound) {
				d.add("timers", stateUnknown, "", "%s", err)
			}
			return
		}
		pending++
		if overdue(d.now(), t.At) {
			late++
		}
	}
	if unread > 0 {
		d.add("timers", stateBad, "find out who else publishes to CURL_REQUESTS; `curlctl refetch --all` replaces the timers", "%s cannot be read", plural(unread, "timer"))
		return
	}
	if late > 0 {
		d.add("timers", stateBad, "restart the leader of CURL_REQUESTS (`nats stream cluster step-down CURL_REQUESTS`); `curlctl refetch --all` replaces the timers",
			"%s of %d should have fired", plural(late, "timer"), pending)
		return
	}
	d.add("timers", stateOK, "", "%s, none overdue", plural(pending, "timer"))
}

// wants looks for those that cannot be read, so that no service acts on them.
func (d *diagnosis) wants(ctx context.Context) {
	wanted, unread := 0, 0
	for _, err := range d.Client.Wants(ctx, "", "") {
		switch {
		case err == nil:
			wanted++
		case pipeline.Unreadable(err):
			unread++
		default:
			if !errors.Is(err, jetstream.ErrStreamNotFound) {
				d.add("wants", stateUnknown, "", "%s", err)
			}
			return
		}
	}
	if unread > 0 {
		d.add("wants", stateBad, "find out who else publishes to CURL_REQUESTS; restart the watcher, which replaces them", "%s cannot be read", plural(unread, "want"))
		return
	}
	d.add("wants", stateOK, "", "%s", plural(wanted, "key"))
}
