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

// Says makes the page respond with 200 and a text.
func (p *Page) Says(ctx context.Context, text string) error { return p.Serves(ctx, []byte(text)) }

// Serves makes the page respond with 200 and a body.
func (p *Page) Serves(ctx context.Context, body []byte) error {
	p.origin.remember(p.URL(), body)
	p.instruction.Status, p.instruction.Body = http.StatusOK, body
	return p.instruct(ctx)
}

// Fails makes the page respond with a status other than 200.
func (p *Page) Fails(ctx context.Context, status int) error {
	p.instruction.Status, p.instruction.Body = status, nil
	return p.instruct(ctx)
}

// Requires makes the page respond with 401 to a request without that Authorization, from its next
// instruction on.
func (p *Page) Requires(authorization string) *Page {
	p.instruction.Authorization = authorization
	return p
}

// Tagged makes the page send an ETag from its next instruction on, and respond with 304 to a
// request with that ETag (RFC 9110 section 13.1.2).
func (p *Page) Tagged() *Page {
	p.instruction.Tagged = true
	return p
}

// Hold blocks requests from now on until Release.
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
