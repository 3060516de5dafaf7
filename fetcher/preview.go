package fetcher

import (
	"cmp"
	"context"
	"errors"

	"github.com/rs/zerolog"

	"github.com/kv8s/curl-me-that/fetcher/internal/egress"
	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/rule"
)

// Preview is the expected outcome of a fetch.
type Preview struct {
	// Allowed reports whether the egress policy permits the URL. Reason is one sentence without an
	// address.
	Allowed bool
	Reason  string
	// Failure is the reason of a failed lookup or GET, as in Events. Empty means none.
	Failure string
	// Credential says which credential is sent; empty without a header file.
	Credential string
	// Size and SHA256 describe the body, if there is one.
	Size   int
	SHA256 string
	// Outcome of the rules and the selection on the body.
	Outcome rule.Outcome

	addresses []egress.AddressVerdict
	err       error
}

// Preview applies the configuration to a URL, and makes one GET if it is allowed and requested. Rules
// are evaluated on its body, for a key that holds that many bytes. It needs no broker and stores nothing.
func (c *Config) Preview(ctx context.Context, namespace, url string, fetch bool, rules rule.Set, held int64) (Preview, error) {
	if err := c.Validate(); err != nil {
		return Preview{}, err
	}
	gate, client, err := newGetter(*c, zerolog.Nop(), nil)
	if err != nil {
		return Preview{}, err
	}
	verdict := gate.Verdict(ctx, namespace, url)
	preview := Preview{
		Allowed: verdict.Allowed, Reason: verdict.Reason, Credential: client.Credential(namespace, url),
		addresses: verdict.Addresses, err: verdict.Err,
	}
	var denied *egress.DeniedError
	if !verdict.Allowed && !errors.As(verdict.Err, &denied) {
		preview.Failure = pipeline.Reason(v1.FailureClass_FAILURE_CLASS_DNS_FAILED)
	}
	if !fetch || !verdict.Allowed {
		return preview, nil
	}
	ended, end := context.WithCancel(ctx)
	end()
	defer func() { _ = client.Run(ended) }() // closes what is open
	response, err := client.Do(ctx, get.Request{URL: url, Namespace: namespace})
	var failed *get.Error
	switch {
	case errors.As(err, &failed):
		preview.Failure, preview.Reason = pipeline.Reason(failed.Class), failed.Error()
	case err != nil:
		return preview, err
	default:
		preview.Size, preview.SHA256 = len(response.Body), response.SHA256
		evaluator := rule.NewEvaluator(cmp.Or(c.Engine.MaxExpressionBody, rule.DefaultMaxBody))
		preview.Outcome = evaluator.Evaluate(namespace, rules, response.Body, held)
	}
	return preview, nil
}
