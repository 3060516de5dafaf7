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

// maxAnswer is the maximum size of a response, in bytes.
const maxAnswer = 1 << 20

// disk returns the laxest setting of all servers, or nil unless all respond. Only the monitoring
// port and the system account have it, and the watcher has no access to the latter.
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

// varz requests the setting of one server.
func varz(ctx context.Context, address string) (*process.DiskSync, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(address, "/")+"/varz", http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var answer process.Varz
	if err := json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(&answer); err != nil {
		return nil, fmt.Errorf("read the response of %s: %w", address, err)
	}
	if answer.JetStream.Config == nil {
		return nil, fmt.Errorf("%s shows nothing about JetStream", address)
	}
	return answer.JetStream.Config, nil
}
