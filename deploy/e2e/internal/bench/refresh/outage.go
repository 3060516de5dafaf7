package refresh

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/keys"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/markdown"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/system"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/usage"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

const (
	// seldom is an interval in which no key is refreshed by itself.
	seldom = time.Hour
	// timersPerSecond is fewer than can be published in a second on a busy machine, so
	// that none comes due before the outage.
	timersPerSecond = 1400
)

// Outage is how soon there is a response after NATS was away while the timers of
// all keys came due.
type Outage struct {
	Keys int `json:"keys"`
	// First is the time from the start of NATS to the response to a new want, and
	// All that to the last one to a key that was due, in seconds.
	First float64 `json:"firstSeconds"`
	All   float64 `json:"allSeconds"`
	// CPU is the time on a processor from the start on, in milliseconds for a key, by
	// program.
	CPU map[string]float64 `json:"cpuMillisecondsPerKey"`
}

// slack is how long the end of fetcher and NATS may take on a busy machine.
const slack = 20 * time.Second

// MeasureOutage lets NATS and the fetcher be away until all timers are due.
func MeasureOutage(ctx context.Context, o Options, progress func(string, ...any)) (report Outage, err error) {
	return report, with(ctx, o, func(m *measurement) error {
		progress("publishing %d wants", o.Keys)
		if err := m.fill(ctx, seldom); err != nil {
			return err
		}
		due := time.Now().Add(slack + time.Duration(o.Keys)*time.Second/timersPerSecond)
		progress("publishing their timers, and waiting without NATS until all are due")
		if err := m.schedule(ctx, due); err != nil {
			return err
		}
		report, err = m.outage(ctx, due)
		return err
	})
}

// schedule replaces the timers of all keys.
func (m *measurement) schedule(ctx context.Context, due time.Time) error {
	return keys.Each(ctx, m.options.Keys, func(ctx context.Context, n int) error {
		timer := keys.Due(n, m.want(n, seldom), m.sequences[n], due)
		timer.Settled.Etag = etag
		return m.publisher.PublishTimer(ctx, timer, due)
	})
}

func (m *measurement) outage(ctx context.Context, due time.Time) (o Outage, err error) {
	var began time.Time
	err = m.system.Restart(ctx, "fetcher", func() error {
		err := m.system.Restart(ctx, "nats", func() error {
			if time.Now().After(due) {
				return fmt.Errorf("timers came due before NATS was away: this machine is too slow for %d keys", m.options.Keys)
			}
			err := system.Pause(ctx, time.Until(due))
			began = time.Now()
			return err
		})
		if err != nil {
			return err
		}
		// The connection that was there before may wait a while until it tries again.
		nc, js, err := keys.Connect(m.system.NATS())
		if err != nil {
			return err
		}
		defer nc.Close()
		_, err = pipeline.NewClient(js).PublishWant(ctx, m.want(m.options.Keys, seldom), 0)
		return err
	})
	if err != nil {
		return o, err
	}
	if err := m.await(ctx, &m.origin.bodies, m.options.Keys+1); err != nil {
		return o, err
	}
	o = Outage{Keys: m.options.Keys, First: time.Since(began).Seconds(), CPU: map[string]float64{}}
	if err := m.await(ctx, &m.origin.unmodified, m.options.Keys); err != nil {
		return o, err
	}
	o.All = time.Since(began).Seconds()
	used, err := m.system.Usage()
	for name, u := range used {
		o.CPU[name] = usage.Milliseconds(u.CPU) / float64(o.Keys)
	}
	return o, err
}

// WriteTable writes the report as Markdown.
func (o Outage) WriteTable(w io.Writer) error {
	t := markdown.New(fmt.Sprintf("NATS was away while %d timers came due", o.Keys), "")
	t.Row("response to a new want, after the start of NATS", "%.2f s", o.First)
	t.Row("responses to all that was due", "%.2f s, %.0f a second", o.All, float64(o.Keys)/o.All)
	t.Row("its part of that time", "%.2f", o.First/o.All)
	for _, name := range []string{"nats", "fetcher"} {
		t.Row("CPU of "+name+" for a key", "%.3f ms", o.CPU[name])
	}
	return t.Write(w)
}
