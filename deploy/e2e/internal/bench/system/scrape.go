package system

import (
	"context"
	"io"
	"net/http"
	"time"
)

// accept is what Prometheus asks for: native histograms are in the first only.
const accept = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6," +
	"application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4"

// scrape reads the metrics of a program at an interval until it is stopped.
func (p *program) scrape(ctx context.Context, url string, every time.Duration) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				read(ctx, url)
			}
		}
	}()
	p.unscrape = func() { cancel(); <-ended }
}

// read reads metrics once; a program that does not listen yet is left for the
// next time.
func read(ctx context.Context, url string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return
	}
	request.Header.Set("Accept", accept)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
}
