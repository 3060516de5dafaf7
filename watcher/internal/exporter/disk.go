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
	// always tells that it is before it is acknowledged.
	always bool
	// interval is the longest time that it takes else.
	interval time.Duration
}

// disk asks all servers; nil unless all of them have told. Only the system
// account and the monitoring port tell, and the watcher has no business in the
// system account.
func (e *Exporter) disk(ctx context.Context) *disk {
	if len(e.options.Monitors) == 0 {
		return nil
	}
	all := &disk{always: true}
	for _, address := range e.options.Monitors {
		one, err := varz(ctx, address)
		if err != nil {
			e.options.Log.Debug().Err(err).Msg("a NATS server does not tell how soon it writes to disk")
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
		return disk{}, fmt.Errorf("read what the monitoring port tells: %w", err)
	}
	if answer.JetStream.Config == nil {
		return disk{}, fmt.Errorf("%s tells nothing about JetStream", address)
	}
	return disk{always: answer.JetStream.Config.Always, interval: answer.JetStream.Config.Interval}, nil
}
