// Package overdue measures the memory of a NATS that was away while timers came
// due: it publishes all of them at once when it is back.
package overdue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/keys"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/system"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/usage"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

const (
	// keysPerSecond is fewer than can be published in a second, so that no timer
	// fires before the server is stopped.
	keysPerSecond = 5000
	// polling is how often the server is asked for what has fired.
	polling = 100 * time.Millisecond
	// nats is the name of the program.
	nats = "nats"
)

// Report is what was measured.
type Report struct {
	// Keys that have a want and a timer.
	Keys int `json:"keys"`
	// Empty is the server with empty streams, Pending with all timers pending after
	// a start, and Burst after a start at which all of them are due.
	Empty   usage.Usage `json:"empty"`
	Pending usage.Usage `json:"pending"`
	Burst   usage.Usage `json:"burst"`
	// Fired is how many seconds it took until all had fired.
	Fired float64 `json:"firedSeconds"`
}

// Run starts a server of its own, with keys that are wanted and refreshed.
func Run(ctx context.Context, count int, progress func(string, ...any)) (report Report, err error) {
	server, err := system.StartNATS(ctx)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, server.Stop(ctx)) }()
	report.Keys = count
	due := time.Now().Add(10*time.Second + time.Duration(count)*time.Second/keysPerSecond)
	progress("publishing %d wants and their timers", count)
	if report.Empty, err = fill(ctx, server, count, due); err != nil {
		return report, err
	}
	if report.Pending, err = pending(ctx, server); err != nil {
		return report, err
	}
	if time.Now().After(due) {
		return report, errors.New("timers fired before the server was stopped: this machine is too slow for so many keys")
	}
	progress("pending: %d MiB; stopping NATS until all are due", report.Pending.RSS>>20)
	var began time.Time
	err = server.Restart(ctx, nats, func() error {
		err := system.Pause(ctx, time.Until(due)+time.Second)
		began = time.Now()
		return err
	})
	if err != nil {
		return report, err
	}
	if err := fired(ctx, server.NATS(), count); err != nil {
		return report, err
	}
	report.Fired = time.Since(began).Seconds()
	report.Burst, err = used(server)
	return report, err
}

// pending starts the server anew and returns what it uses then.
func pending(ctx context.Context, server *system.System) (usage.Usage, error) {
	if err := server.Restart(ctx, nats, func() error { return nil }); err != nil {
		return usage.Usage{}, err
	}
	return used(server)
}

// used is what the server has used since its last start.
func used(server *system.System) (usage.Usage, error) {
	all, err := server.Usage()
	return all[nats], err
}

// fill creates the streams and publishes all. It returns what the server used
// before that.
func fill(ctx context.Context, server *system.System, count int, due time.Time) (empty usage.Usage, err error) {
	publisher, err := keys.NewPublisher(ctx, server.NATS())
	if err != nil {
		return empty, err
	}
	defer publisher.Close()
	if empty, err = used(server); err != nil {
		return empty, err
	}
	return empty, keys.Each(ctx, count, func(ctx context.Context, n int) error {
		return publisher.Refreshed(ctx, n, due)
	})
}

// fired waits until each key has a due.
func fired(ctx context.Context, url string, count int) error {
	nc, js, err := keys.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	for {
		consumer, err := js.Consumer(ctx, pipeline.Requests, pipeline.FetcherConsumer)
		if err == nil && consumer.CachedInfo().NumPending >= 2*uint64(count) { // the wants are new to it, too
			return nil
		}
		if err := system.Pause(ctx, polling); err != nil {
			return err
		}
	}
}

// WriteTable writes the report as Markdown.
func (r Report) WriteTable(w io.Writer) error {
	each := func(above, below uint64) float64 { return float64(int64(above)-int64(below)) / 1024 / float64(r.Keys) }
	mebibytes := func(bytes uint64) float64 { return float64(bytes) / (1 << 20) }
	_, err := fmt.Fprintf(w, `| NATS with %d keys | RSS, MiB | KiB a key |
|---|---|---|
| empty streams | %.0f | |
| all timers pending, after a start | %.0f | %.2f |
| peak while all fire, overdue at a start | %.0f | %.2f |

All had fired after %.1f s; at the peak it used %.1f times as much as before.
`, r.Keys, mebibytes(r.Empty.RSS), mebibytes(r.Pending.PeakRSS), each(r.Pending.PeakRSS, r.Empty.RSS),
		mebibytes(r.Burst.PeakRSS), each(r.Burst.PeakRSS, r.Empty.RSS), r.Fired,
		float64(r.Burst.PeakRSS)/float64(r.Pending.PeakRSS))
	if err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	return nil
}
