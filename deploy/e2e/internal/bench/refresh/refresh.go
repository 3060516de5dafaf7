// Package refresh measures what it costs to look again at keys that do not
// change: a fetcher and a NATS of their own, and a host that answers 304.
package refresh

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/keys"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/system"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/usage"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

const (
	// Every is the interval of all keys, the shortest that a tenant may ask for.
	Every = 10 * time.Second
	// fillTimeout is how long one GET of each key may take.
	fillTimeout = 5 * time.Minute
	// polling is how often these GETs are counted.
	polling = 10 * time.Millisecond

	etag = `"one"`
)

// Options of a measurement.
type Options struct {
	// Bin is the folder with the fetcher.
	Bin string
	// Keys that are refreshed every 10 s.
	Keys int
	// Replicas of the streams, as many servers as NATS has; 0: one.
	Replicas int
	// Rounds is how many refreshes of each key are counted.
	Rounds int
	// Profiles is the folder for profiles; empty: none are taken.
	Profiles string
}

// window is how long refreshes are counted.
func (o Options) window() time.Duration { return time.Duration(o.Rounds) * Every }

// Report is what was measured in one window.
type Report struct {
	// Keys that were refreshed, and PerSecond how many GETs there were: Keys / 10
	// when the fetcher carries the load.
	Keys      int     `json:"keys"`
	Replicas  int     `json:"replicas"`
	PerSecond float64 `json:"perSecond"`
	// Other is how many of the responses in the window were no 304, and Results how
	// many results were published for them: none, when all goes well.
	Other   int `json:"otherResponses"`
	Results int `json:"results"`
	// Stored is how many messages JetStream stored for a refresh.
	Stored float64 `json:"messagesPerRefresh"`
	// CPU is the time on a processor for a refresh, by program, in milliseconds.
	CPU map[string]float64 `json:"cpuMillisecondsPerRefresh"`
	// Bare is what a GET with a 304 takes of a processor that nothing else is done
	// for, client and host together, in milliseconds, and Ratio what a refresh takes
	// of our programs, in units of that; both are 0 where it is unknown.
	Bare  float64 `json:"cpuMillisecondsPerBareGet"`
	Ratio float64 `json:"ratioToBareGet"`
	// Memory is what each program used at the end.
	Memory map[string]usage.Usage `json:"memory"`
}

// Run publishes the wants, waits until all have their body, and then counts.
func Run(ctx context.Context, o Options, progress func(string, ...any)) (report Report, err error) {
	return report, with(ctx, o, func(m *measurement) error {
		progress("publishing %d wants that are refreshed every %s", o.Keys, Every)
		if err := errors.Join(m.fill(ctx, Every), system.Pause(ctx, Every)); err != nil {
			return err
		}
		progress("all have their body; counting refreshes for %s", o.window())
		if report, err = m.count(ctx); err != nil {
			return err
		}
		if report.Bare, err = m.bare(ctx); err != nil || report.Bare == 0 {
			return err
		}
		report.Ratio = report.total() / report.Bare
		return nil
	})
}

// with starts NATS, a fetcher and a host, and ends them once do returns.
func with(ctx context.Context, o Options, do func(*measurement) error) (err error) {
	s, err := system.StartFetchers(ctx, system.Options{Bin: o.Bin, Profiles: o.Profiles, Replicas: o.Replicas})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop(ctx)) }()
	m := measurement{options: o, system: s}
	m.host = httptest.NewServer(&m.origin)
	defer m.host.Close()
	if m.publisher, err = keys.NewPublisher(ctx, s.NATS()); err != nil {
		return err
	}
	defer m.publisher.Close()
	for _, kind := range []pipeline.Kind{pipeline.KindContent, pipeline.KindFailure, pipeline.KindRemoved} {
		if _, err = m.publisher.JS.Conn().Subscribe(kind.All(), func(*nats.Msg) { m.results.Add(1) }); err != nil {
			return fmt.Errorf("subscribe to results: %w", err)
		}
	}
	return do(&m)
}

// measurement is one run.
type measurement struct {
	options Options
	system  *system.System
	host    *httptest.Server
	origin  origin
	results atomic.Int64

	publisher *keys.Publisher
	// sequences are those of the wants.
	sequences []uint64
}

// origin answers 304 to a request with the validator of its only body.
type origin struct{ bodies, unmodified atomic.Int64 }

// ServeHTTP answers a GET.
func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Etag", etag)
	if r.Header.Get("If-None-Match") == etag {
		o.unmodified.Add(1)
		w.WriteHeader(http.StatusNotModified)
		return
	}
	o.bodies.Add(1)
	_, _ = w.Write([]byte(r.URL.Path)) //nolint:gosec // G705: no browser asks this; a client that is gone asks again
}

// want is that of the n-th key.
func (m *measurement) want(n int, every time.Duration) *v1.Want {
	return keys.Want(n, m.publisher.Epoch, fmt.Sprint(m.host.URL, "/", n), every)
}

// fill publishes all wants, and waits until each key has its body.
func (m *measurement) fill(ctx context.Context, every time.Duration) (err error) {
	m.sequences = make([]uint64, m.options.Keys)
	err = keys.Each(ctx, m.options.Keys, func(ctx context.Context, n int) (err error) {
		m.sequences[n], err = m.publisher.PublishWant(ctx, m.want(n, every), 0)
		return err
	})
	if err != nil {
		return err
	}
	return m.await(ctx, &m.origin.bodies, m.options.Keys)
}

// await waits until there were so many responses of a kind.
func (m *measurement) await(ctx context.Context, responses *atomic.Int64, count int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, fillTimeout, fmt.Errorf("not all keys had a response after %s", fillTimeout))
	defer cancel()
	for responses.Load() < int64(count) {
		if err := errors.Join(m.system.Err(), system.Pause(ctx, polling)); err != nil {
			return err
		}
	}
	return nil
}

// count compares two readings.
func (m *measurement) count(ctx context.Context) (report Report, err error) {
	profiles := func() error { return nil }
	if m.options.Profiles != "" {
		profiles = m.system.Profile(ctx, "refresh").Wait
	}
	before, err := m.read(ctx)
	if err != nil {
		return report, err
	}
	if err := system.Pause(ctx, m.options.window()); err != nil {
		return report, err
	}
	after, err := m.read(ctx)
	if err != nil {
		return report, err
	}
	refreshes := max(after.unmodified-before.unmodified, 1)
	report = Report{
		Keys: m.options.Keys, Replicas: m.options.Replicas, PerSecond: float64(refreshes) / after.at.Sub(before.at).Seconds(),
		Other: int(after.bodies - before.bodies), Results: int(after.results - before.results),
		Stored: float64(after.stored-before.stored) / float64(refreshes),
		CPU:    map[string]float64{}, Memory: after.programs,
	}
	for name, used := range after.programs {
		report.CPU[name] = usage.Milliseconds(used.CPU-before.programs[name].CPU) / float64(refreshes)
	}
	return report, errors.Join(m.system.Err(), profiles())
}

// snapshot is what had happened at one moment.
type snapshot struct {
	at                          time.Time
	bodies, unmodified, results int64
	stored                      uint64
	programs                    map[string]usage.Usage
}

func (m *measurement) read(ctx context.Context) (r snapshot, err error) {
	for _, name := range []string{pipeline.Requests, pipeline.Results} {
		stream, err := m.publisher.JS.Stream(ctx, name)
		if err != nil {
			return r, fmt.Errorf("read stream %s: %w", name, err)
		}
		r.stored += stream.CachedInfo().State.LastSeq
	}
	if r.programs, err = m.system.Usage(); err != nil && !errors.Is(err, usage.ErrUnknown) {
		return r, err
	}
	r.at, r.bodies, r.unmodified, r.results = time.Now(), m.origin.bodies.Load(), m.origin.unmodified.Load(), m.results.Load()
	return r, nil
}
