package process

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

const (
	// getTimeout is the time limit of a request, and maxAnswer the maximum size of its response in bytes.
	getTimeout = 15 * time.Second
	maxAnswer  = 16 << 20
)

// Get returns the body and the status code of the response to a GET.
func Get(ctx context.Context, url string) (body string, code int, err error) {
	ctx, cancel := context.WithTimeout(ctx, getTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", 0, fmt.Errorf("get %s: %w", url, err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", 0, fmt.Errorf("send a request: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return "", 0, fmt.Errorf("get %s: %w", url, err)
	}
	return string(text), response.StatusCode, nil
}

// Samples returns the samples of all series at a metrics URL. Series of histograms keep their suffixes.
func Samples(ctx context.Context, url string) (model.Vector, error) {
	body, code, err := Get(ctx, url)
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("read the metrics of %s: status %d", url, code)
	}
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("read the metrics of %s: %w", url, err)
	}
	return expfmt.ExtractSamples(&expfmt.DecodeOptions{}, slices.Collect(maps.Values(families))...)
}
