package process

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	probeInterval = 20 * time.Millisecond
	// maxAnswer is how much of an answer is read, in bytes.
	maxAnswer = 4 << 10
)

// AwaitOK waits until a GET of the URL is answered with 200. The error says what
// the last answer was.
func (p *Process) AwaitOK(ctx context.Context, url string) error {
	ticker := time.NewTicker(probeInterval)
	defer ticker.Stop()
	for last := ""; ; {
		ok, answer := probe(ctx, url)
		if ok {
			return nil
		}
		if ctx.Err() == nil {
			last = answer
		}
		select {
		case <-p.exited:
			return p.Err()
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w; its last answer: %s", p.name, context.Cause(ctx), last)
		case <-ticker.C:
		}
	}
}

func probe(ctx context.Context, url string) (ok bool, answer string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false, err.Error()
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return false, err.Error()
	}
	return response.StatusCode == http.StatusOK, string(text)
}
