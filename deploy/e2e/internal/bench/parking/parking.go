// Package parking measures how many of the slots of a host are in use while many
// keys wait for them, and how often each key is put off until it has its GET.
package parking

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/process"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/natstest"
)

const (
	// waiting is how many keys wait for one host.
	waiting = 16_000
	// window is how long each case is looked at, or for three answers, or until no
	// key waits.
	window = 15 * time.Second
	// slots are those of one host in one fetcher; one is kept for a second
	// namespace.
	slots = 8
	// readyTimeout is for the start of the fetcher.
	readyTimeout = 30 * time.Second
)

// Options of a measurement.
type Options struct {
	// Bin is the folder with the fetcher.
	Bin string
	// Part of the keys and of the window, above 0 to 1.
	Part float64
}

// Row is the result for one host.
type Row struct {
	// Latency of its answers in seconds, and Known: it was used before.
	Latency float64 `json:"latencySeconds"`
	Known   bool    `json:"usedBefore"`
	// Waiting is how many keys asked for it, and Gets how many had their GET in
	// the time.
	Waiting int `json:"keys"`
	Gets    int `json:"gets"`
	// Used is the part of the slots that was in use, and Parks how often a key
	// that had its GET was put off before.
	Used  float64 `json:"slotsInUseRatio"`
	Parks float64 `json:"parksPerGet"`
}

// Rows are the hosts that were measured.
type Rows []Row

// Run measures each host with a broker and a fetcher of its own.
func Run(ctx context.Context, o Options, progress func(format string, arguments ...any)) (Rows, error) {
	var rows Rows
	for _, latency := range []time.Duration{time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second} {
		for _, known := range []bool{true, false} {
			row, err := measure(ctx, o, latency, Row{Latency: latency.Seconds(), Known: known, Waiting: max(1, int(waiting*o.Part))})
			if err != nil {
				return rows, fmt.Errorf("measure a host with answers after %s: %w", latency, err)
			}
			progress("answers after %s, used before: %t: %.2f used, %.2f parks", latency, known, row.Used, row.Parks)
			rows = append(rows, row)
		}
	}
	return rows, nil
}

func measure(ctx context.Context, o Options, latency time.Duration, row Row) (_ Row, err error) {
	broker, err := natstest.Run(natstest.Options{Listen: true})
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, broker.Close()) }()
	js, closeConn, err := broker.JetStream()
	if err != nil {
		return row, err
	}
	defer closeConn()
	epoch, err := pipeline.Ensure(ctx, js, pipeline.Topology{})
	if err != nil {
		return row, err
	}
	h := newHost(latency)
	defer h.Close()
	seen, err := h.follow(js.Conn())
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, seen.unsubscribe()) }()

	fetcher, err := startFetcher(ctx, o.Bin, broker.URL())
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, fetcher.Kill()) }()
	client := pipeline.NewClient(js)
	ask := func(n int) error {
		_, err := client.PublishWant(ctx, &v1.Want{
			Namespace: "default", Name: fmt.Sprintf("cm-%d", n), Key: "k", Uid: "uid", Url: fmt.Sprintf("%s/%d", h.URL(), n), Epoch: epoch,
		}, 0)
		return err
	}
	if row.Known {
		if err := ask(0); err != nil {
			return row, err
		}
		if err := h.await(ctx, 1, latency+readyTimeout); err != nil {
			return row, err
		}
	}
	h.begin()
	for n := range row.Waiting {
		if err := ask(n + 1); err != nil {
			return row, err
		}
	}
	if err := h.await(ctx, row.Waiting, time.Duration(float64(max(window, 3*latency))*o.Part)); err != nil && !errors.Is(err, errTime) {
		return row, err
	}
	row.Gets, row.Used, row.Parks = h.figures()
	return row, nil
}

func startFetcher(ctx context.Context, bin, broker string) (*process.Process, error) {
	address, err := process.NewPorts().Free()
	if err != nil {
		return nil, err
	}
	p, err := process.Start(process.Program{Name: "fetcher", Path: filepath.Join(bin, "fetcher"), Args: []string{
		"--nats-url=" + broker, "--listen=" + address, process.AllowLoopback, "--timeout=20s",
	}})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		err := process.Ready(ctx, "http://"+address+"/readyz")
		if err == nil {
			return p, nil
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("wait for the fetcher: %w; its last line: %s", err, p.Log.Last()), p.Kill())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// follow counts what is published about each key.
func (h *host) follow(conn *nats.Conn) (*subscriptions, error) {
	var all subscriptions
	for kind, note := range map[pipeline.Kind]func(pipeline.Key){pipeline.KindTimer: h.parked, pipeline.KindContent: h.filled} {
		s, err := conn.Subscribe(kind.All(), func(m *nats.Msg) {
			if _, key, err := pipeline.ParseSubject(m.Subject); err == nil {
				note(key)
			}
		})
		if err != nil {
			return nil, fmt.Errorf("subscribe to %s: %w", kind, err)
		}
		if err := s.SetPendingLimits(-1, -1); err != nil {
			return nil, fmt.Errorf("subscribe to %s: %w", kind, err)
		}
		all = append(all, s)
	}
	return &all, conn.Flush()
}

// subscriptions end together.
type subscriptions []*nats.Subscription

// unsubscribe ends them.
func (s *subscriptions) unsubscribe() error {
	var errs []error
	for _, one := range *s {
		errs = append(errs, one.Unsubscribe())
	}
	return errors.Join(errs...)
}
