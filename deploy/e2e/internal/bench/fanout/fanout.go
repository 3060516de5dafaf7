// Package fanout measures how several fetchers share the work of hosts that are
// slow.
package fanout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/keys"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/markdown"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/system"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/usage"
)

const (
	// latency of each response.
	latency = 100 * time.Millisecond
	// slots of a fetcher, and of one host in it, by its defaults.
	slots, slotsPerHost = 64, 8
	// many hosts have slots enough for the largest number of fetchers.
	many = 64
	// rounds is how many GETs each slot has to make.
	rounds = 50
	// timeout for one row.
	timeout = 5 * time.Minute
	polling = 10 * time.Millisecond
)

// Options of a measurement.
type Options struct {
	// Bin is the folder with the fetcher.
	Bin string
	// Part of the work, above 0 to 1.
	Part float64
}

// Row is one number of fetchers.
type Row struct {
	Fetchers int `json:"fetchers"`
	Hosts    int `json:"hosts"`
	// Gets is how many keys there were, and PerSecond how many of them had their
	// response in a second, from the first GET on.
	Gets      int     `json:"gets"`
	PerSecond float64 `json:"perSecond"`
	// Ideal is what so many slots do in a second when each is always in use.
	Ideal float64 `json:"idealPerSecond"`
	// CPU is the time on a processor of NATS and all fetchers, in milliseconds for a
	// GET.
	CPU float64 `json:"cpuMillisecondsPerGet"`
}

// Rows are those that were measured.
type Rows []Row

// Run measures each number of fetchers with a NATS of its own.
func Run(ctx context.Context, o Options, progress func(string, ...any)) (rows Rows, err error) {
	for _, hosts := range []int{many, 1} {
		for _, fetchers := range []int{1, 2, 4, 8} {
			row, err := measure(ctx, o, Row{Fetchers: fetchers, Hosts: hosts})
			if err != nil {
				return rows, fmt.Errorf("%d fetchers: %w", fetchers, err)
			}
			progress("%d fetchers, %d hosts: %.0f/s", fetchers, hosts, row.PerSecond)
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// origin is all hosts.
type origin struct {
	gets  atomic.Int64
	first atomic.Pointer[time.Time]
}

// ServeHTTP takes its time.
func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	o.first.CompareAndSwap(nil, &now)
	if system.Pause(r.Context(), latency) == nil {
		_, _ = w.Write([]byte("as asked"))
		o.gets.Add(1)
	}
}

func measure(ctx context.Context, o Options, row Row) (_ Row, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not all keys had a response after %s", timeout))
	defer cancel()
	var all origin
	urls := make([]string, row.Hosts)
	for i := range urls {
		host := httptest.NewServer(&all)
		defer host.Close()
		urls[i] = host.URL
	}
	perFetcher := min(slots, slotsPerHost*row.Hosts)
	row.Ideal = float64(row.Fetchers*perFetcher) / latency.Seconds()
	row.Gets = max(1, int(float64(row.Fetchers*perFetcher*rounds)*o.Part))

	s, err := system.StartFetchers(ctx, system.Options{Bin: o.Bin, Fetchers: row.Fetchers, Limits: true})
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, s.Stop(ctx)) }()
	if err := publish(ctx, s.NATS(), row.Gets, urls); err != nil {
		return row, err
	}
	for all.gets.Load() < int64(row.Gets) {
		if err := errors.Join(s.Err(), system.Pause(ctx, polling)); err != nil {
			return row, err
		}
	}
	row.PerSecond = float64(row.Gets) / time.Since(*all.first.Load()).Seconds()
	used, err := s.Usage()
	row.CPU = usage.Milliseconds(used["fetcher"].CPU+used["nats"].CPU) / float64(row.Gets)
	return row, err
}

// publish publishes a want for each key, with a URL of its own.
func publish(ctx context.Context, url string, count int, hosts []string) error {
	publisher, err := keys.NewPublisher(ctx, url)
	if err != nil {
		return err
	}
	defer publisher.Close()
	return keys.Each(ctx, count, func(ctx context.Context, n int) error {
		_, err := publisher.PublishWant(ctx, keys.Want(n, publisher.Epoch, fmt.Sprintf("%s/%d", hosts[n%len(hosts)], n), 0), 0)
		return err
	})
}

// WriteTable writes the rows as Markdown.
func (rows Rows) WriteTable(w io.Writer) error {
	t := markdown.New(fmt.Sprintf("responses after %s", latency), "fetchers", "GETs", "a second", "÷ all slots always in use", "CPU for a GET")
	for _, r := range rows {
		name := "one host"
		if r.Hosts > 1 {
			name = fmt.Sprint(r.Hosts, " hosts")
		}
		t.Row(name, "%d | %d | %.0f | %.2f | %.2f ms", r.Fetchers, r.Gets, r.PerSecond, r.PerSecond/r.Ideal, r.CPU)
	}
	return t.Write(w)
}
