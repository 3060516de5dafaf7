package fetcher

import (
	"context"
	"errors"

	"github.com/rs/zerolog"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/rule"
)

// Preview is the expected outcome of a fetch.
type Preview struct {
	// Allowed reports whether the egress policy permits the URL. Reason explains this or a failed GET, without an address.
	Allowed bool
	Reason  string
	// Failure is the reason of a failed lookup or GET, as in Events. Empty means none.
	Failure string
	// Credential names the credential to send (empty without a header file).
	Credential string
	// Size and SHA256 describe the body, if there is one.
	Size   int
	SHA256 string
	// Hops are the requests of the GET and their responses, as in get.Observer.
	Hops [][2]string
	// Outcome is that of the rules and the selection on the body.
	Outcome rule.Evaluation
}

// PreviewRequest describes a preview.
type PreviewRequest struct {
	Namespace, URL string
	// Fetch makes one GET if the URL is allowed.
	Fetch bool
	// Offline checks the name, but does not look it up.
	Offline bool
	// Rules are evaluated on the body, for a key that holds Held bytes.
	Rules rule.Set
	Held  int64
}

// Preview applies the configuration to a URL. It needs no broker and stores nothing.
func (c *Config) Preview(ctx context.Context, r PreviewRequest) (Preview, error) {
	if err := c.Validate(); err != nil {
		return Preview{}, err
	}
	cfg := *c
	if r.Offline {
		cfg.Egress.ProxyResolves, cfg.Egress.DirectHosts = true, nil
	}
	gate, client, err := newGetter(cfg, zerolog.Nop(), nil)
	if err != nil {
		return Preview{}, err
	}
	reason, err := gate.Preview(ctx, r.Namespace, r.URL)
	preview := Preview{Allowed: err == nil, Reason: reason, Credential: client.Credential(r.Namespace, r.URL)}
	switch {
	case err != nil && !errors.Is(err, egress.ErrDenied):
		preview.Failure = failure.Reason(failure.DNSFailed)
	case err == nil && r.Offline:
		preview.Reason = "the name is permitted; offline, its addresses are unknown"
	}
	if !r.Fetch || !preview.Allowed {
		return preview, nil
	}
	observer := &get.Observer{Hop: func(sent, received string) {
		preview.Hops = append(preview.Hops, [2]string{sent, received})
	}}
	response, err := client.Do(ctx, get.Request{URL: r.URL, Namespace: r.Namespace, Observer: observer})
	var failed *get.Error
	switch {
	case errors.As(err, &failed):
		preview.Failure, preview.Reason = failure.Reason(failed.Class), failed.Error()
	case err != nil:
		return preview, err
	default:
		preview.Size, preview.SHA256 = len(response.Body), response.SHA256
		preview.Outcome = new(rule.Evaluator).Evaluate(ctx, r.Namespace, r.Rules, response.Body, r.Held)
	}
	return preview, nil
}
