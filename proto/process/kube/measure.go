package kube

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/kv8s/curl-me-that/proto/process/metric"
)

// noResponse is the status code of a request without a response, as in Kubernetes components.
const noResponse = "<error>"

// Calls counts requests to the API server under the names that Kubernetes components use. The
// implementation in component-base is global, adds the server's address as a label and has many
// unused series, so this one replaces it for one configuration.
type Calls struct {
	requests  *prometheus.CounterVec
	durations *prometheus.HistogramVec
}

// NewCalls creates the metrics in a set with standard names, for the methods that a service uses.
func NewCalls(set *metric.Set, methods ...string) *Calls {
	const name = "rest_client_requests_total"
	const help = "Requests to the API server, by method and status code. " + noResponse + ": no response."
	method := metric.Of("method", methods...)
	c := &Calls{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"code", "method"}),
		durations: set.Histograms("rest_client_request_duration_seconds",
			"Time until the response headers from the API server, by method. A watch continues after that.",
			[]float64{.005, .01, .025, .05, .1, .25, .5, 1, 2, 4, 8, 15, 30}, method),
	}
	for _, m := range method.Values {
		c.requests.WithLabelValues("200", m)
		c.requests.WithLabelValues(noResponse, m)
	}
	set.Add(c.requests, metric.Definition{
		Name: name, Kind: metric.Counter, Help: help,
		Labels: []metric.Label{{Name: "code", Open: "HTTP status codes, `<error>`"}, method},
	})
	return c
}

// Of returns a copy of a configuration whose requests are counted.
func (c *Calls) Of(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &counted{Calls: c, next: next} })
	return config
}

// counted counts requests.
type counted struct {
	*Calls
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (c *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	began := time.Now()
	response, err := c.next.RoundTrip(r)
	code := noResponse
	if err == nil {
		code = strconv.Itoa(response.StatusCode)
	}
	c.requests.WithLabelValues(code, r.Method).Inc()
	c.durations.WithLabelValues(r.Method).Observe(time.Since(began).Seconds())
	return response, err
}

// WrappedRoundTripper lets client-go unwrap it.
func (c *counted) WrappedRoundTripper() http.RoundTripper { return c.next }
