package exporter

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/kv8s/curl-me-that/proto/process"
)

// maxAnswer bounds what a monitoring port answers, in bytes.
const maxAnswer = 1 << 20

// disk asks all servers, and returns the latest; nil unless all of them answer. Only the system
// account and the monitoring port have it, and the watcher has no right in the
// system account.
func (e *Exporter) disk(ctx context.Context) *process.DiskSync {
	if len(e.config.Monitors) == 0 {
		return nil
	}
	all := &process.DiskSync{Always: true}
	for _, address := range e.config.Monitors {
		one, err := varz(ctx, address)
		if err != nil {
			e.deps.Log.Debug().Err(err).Msg("a NATS server does not report how soon it writes to disk")
			return nil
		}
		all.Always = all.Always && one.Always
		all.Interval = max(all.Interval, one.Interval)
	}
	return all
}

// varz asks one server.
func varz(ctx context.Context, address string) (*process.DiskSync, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(address, "/")+"/varz", http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("ask the monitoring port: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask the monitoring port: %w", err)
	}
	defer response.Body.Close()
	var answer process.Varz
	if err := json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(&answer); err != nil {
		return nil, fmt.Errorf("read what the monitoring port answers: %w", err)
	}
	if answer.JetStream.Config == nil {
		return nil, fmt.Errorf("%s shows nothing about JetStream", address)
	}
	return answer.JetStream.Config, nil
}
