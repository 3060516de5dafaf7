package refresh

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/keys"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/usage"
)

// bareGets are enough for a time on a processor that the system counts in hundredths of
// a second.
const bareGets = 20_000

// bare makes GETs with the validator of the host in a loop, and returns the milliseconds
// that each takes of a processor, the host included, which is in this process; 0 where
// that is unknown. The fetcher is not to be at work.
func (m *measurement) bare(ctx context.Context) (cpu float64, err error) {
	if err := m.system.StopFetchers(ctx); err != nil {
		return 0, err
	}
	before, err := usage.Of(os.Getpid())
	if errors.Is(err, usage.ErrUnknown) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	client := http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: keys.Publishers}}
	defer client.CloseIdleConnections()
	err = keys.Each(ctx, bareGets, func(ctx context.Context, n int) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprint(m.host.URL, "/", n), http.NoBody)
		if err != nil {
			return err
		}
		request.Header.Set("If-None-Match", etag)
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		return response.Body.Close()
	})
	if err != nil {
		return 0, fmt.Errorf("make bare GETs: %w", err)
	}
	after, err := usage.Of(os.Getpid())
	return usage.Milliseconds(after.CPU-before.CPU) / bareGets, err
}

// total is the time of all programs for a refresh, in milliseconds.
func (r Report) total() (sum float64) {
	for _, cpu := range r.CPU {
		sum += cpu
	}
	return sum
}
