package exporter

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// maxAnswer bounds what a monitoring port answers, in bytes.
const maxAnswer = 1 << 20

// disk is how soon what was acknowledged is on the disk of every server.
type disk struct {
	// always reports that it is before it is acknowledged.
	always bool
	// interval is the longest time that it takes else.
	interval time.Duration
}

// disk asks all servers; nil unless all of them answer. Only the system
// account and the monitoring port have it, and the watcher has no right in the
// system account.
func (e *Exporter) disk(ctx context.Context) *disk {
	if len(e.config.Monitors) == 0 {
		return nil
	}
	all := &disk{always: true}
	for _, address := range e.config.Monitors {
		one, err := varz(ctx, address)
		if err != nil {
			e.deps.Log.Debug().Err(err).Msg("a NATS server does not report how soon it writes to disk")
			return nil
		}
		all.always = all.always && one.always
		all.interval = max(all.interval, one.interval)
	}
	return all
}

// varz asks one server.
func varz(ctx context.Context, address string) (disk, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(address, "/")+"/varz", http.NoBody)
	if err != nil {
		return disk{}, fmt.Errorf("ask the monitoring port: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return disk{}, fmt.Errorf("ask the monitoring port: %w", err)
	}
	defer response.Body.Close()
	var answer struct {
		JetStream struct {
			Config *struct {
				Interval time.Duration `json:"sync_interval"`
				Always   bool          `json:"sync_always"`
			} `json:"config"`
		} `json:"jetstream"`
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(&answer); err != nil {
		return disk{}, fmt.Errorf("read what the monitoring port answers: %w", err)
	}
	if answer.JetStream.Config == nil {
		return disk{}, fmt.Errorf("%s shows nothing about JetStream", address)
	}
	return disk{always: answer.JetStream.Config.Always, interval: answer.JetStream.Config.Interval}, nil
}
