package get

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// snippetTimeout is the time limit for the body of a response with a bad status.
const snippetTimeout = time.Second

// content reads the body of a 200.
func (x *exchange) content(ctx context.Context, u *url.URL, answer *http.Response) (Response, error) {
	layers, err := gzipLayers(answer.Header)
	if err != nil {
		return Response{}, err
	}
	limit := x.client.cfg.MaxBody
	if answer.ContentLength > limit {
		return Response{}, errTooLarge(limit)
	}
	start := time.Now()
	body, err := readBody(answer.Body, answer.ContentLength, limit)
	if err == nil {
		body, err = decode(ctx, body, layers, limit)
	}
	if err != nil {
		return Response{}, err
	}
	x.client.deps.Observe(ctx, phaseTransfer, time.Since(start))
	return Response{
		Body:       body,
		SHA256:     pipeline.Digest(body),
		Validators: x.validators(u, answer.Header),
	}, nil
}

// badStatus records the data of a response with a bad status.
func (x *exchange) badStatus(answer *http.Response, cancel context.CancelFunc) {
	x.decided = true
	x.status = answer.StatusCode
	x.retryAfter = retryAfter(answer.Header, x.client.deps.Now())
	if answer.StatusCode == http.StatusSwitchingProtocols {
		return
	}
	timer := time.AfterFunc(snippetTimeout, cancel)
	defer timer.Stop()
	snippet := make([]byte, MaxSnippet)
	n, err := io.ReadFull(answer.Body, snippet)
	if err == nil || n > 0 || errors.Is(err, io.EOF) {
		x.snippet = snippet[:n]
	}
}

// firstRead is the initial buffer size for a body of unknown length.
const firstRead = 32 << 10

// readBody reads a body of at most limit bytes. It counts the received bytes regardless of the
// announced length, and never uses a buffer of more than limit+1 bytes. A length that is not
// negative is at most limit and saves copies.
func readBody(body io.Reader, length, limit int64) ([]byte, error) {
	size := min(firstRead, limit+1)
	if length >= 0 {
		size = length + 1
	}
	read := make([]byte, 0, size)
	for {
		n, err := body.Read(read[len(read):cap(read)])
		read = read[:len(read)+n]
		switch {
		case int64(len(read)) > limit:
			return nil, errTooLarge(limit)
		case errors.Is(err, io.EOF):
			return read, nil
		case err != nil:
			return nil, err
		}
		if len(read) == cap(read) {
			larger := make([]byte, len(read), min(2*int64(cap(read)), limit+1))
			copy(larger, read)
			read = larger
		}
	}
}
