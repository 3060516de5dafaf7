package remote

import (
	"context"
	"errors"
	"net/http"
)

// Page is one URL of an origin that runs elsewhere. Its methods may not be
// called from several goroutines.
type Page struct {
	origin      *Origin
	path        string
	instruction Instruction
}

// URL of the page as fetchers reach it.
func (p *Page) URL() string { return p.origin.site + p.path }

// Says lets the page respond 200 and a text.
func (p *Page) Says(ctx context.Context, text string) error { return p.Serves(ctx, []byte(text)) }

// Serves lets the page answer 200 and a body.
func (p *Page) Serves(ctx context.Context, body []byte) error {
	p.origin.remember(p.URL(), body)
	p.instruction.Status, p.instruction.Body = http.StatusOK, body
	return p.instruct(ctx)
}

// Fails lets the page answer a status other than 200.
func (p *Page) Fails(ctx context.Context, status int) error {
	p.instruction.Status, p.instruction.Body = status, nil
	return p.instruct(ctx)
}

// Tagged lets the page send an ETag from its next instruction on, and answer 304 to
// a request that names it (RFC 9110 section 13.1.2).
func (p *Page) Tagged() *Page {
	p.instruction.Tagged = true
	return p
}

// Hold lets requests from now on wait for an answer until Release.
func (p *Page) Hold(ctx context.Context) error {
	p.instruction.Held = true
	return p.instruct(ctx)
}

// Release answers the requests that wait.
func (p *Page) Release(ctx context.Context) error {
	p.instruction.Held = false
	return p.instruct(ctx)
}

// Count returns the counters of the page, or zeros if it was not set yet.
func (p *Page) Count(ctx context.Context) (Count, error) {
	var c Count
	err := p.origin.do(ctx, http.MethodGet, p.path, nil, &c)
	if errors.Is(err, errNoPage) {
		err = nil
	}
	return c, err
}

func (p *Page) instruct(ctx context.Context) error {
	return p.origin.do(ctx, http.MethodPut, p.path, p.instruction, nil)
}
