package installation

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin"
)

// requestTimeout is the time limit of an instruction, which may pass through the API server.
const requestTimeout = 10 * time.Second

// Origin controls an origin that runs elsewhere. It records every body that the origin was set to serve.
type Origin struct {
	client  *http.Client
	control string
	site    string

	good sync.Map // set of good
}

// good is a body that a URL was set to serve.
type good struct {
	url string
	sum [sha256.Size]byte
}

// NewOrigin returns a client for the control URL of an origin. Fetchers reach the origin at the URL site. All
// pages are in folder, which keeps tests apart.
func NewOrigin(client *http.Client, control, site, folder string) *Origin {
	folder = "/" + strings.Trim(folder, "/")
	return &Origin{
		client:  client,
		control: strings.TrimSuffix(control, "/") + origin.ControlPrefix + folder,
		site:    strings.TrimSuffix(site, "/") + folder,
	}
}

// Page returns the page at a path below the folder. It sends nothing to the origin, which responds with 404
// until the page is set.
func (o *Origin) Page(path string) *Page {
	return &Page{origin: o, path: path, instruction: origin.Instruction{Status: http.StatusNotFound}}
}

// Served reports whether a URL was ever set to serve that body. It ignores the query.
func (o *Origin) Served(url string, body []byte) bool {
	url, _, _ = strings.Cut(url, "?")
	_, found := o.good.Load(good{url, sha256.Sum256(body)})
	return found
}

// Forget makes the origin forget all pages below the folder.
func (o *Origin) Forget(ctx context.Context) error { return o.do(ctx, http.MethodDelete, "", nil, nil) }

// errNoPage means that the origin does not have the page.
var errNoPage = errors.New("unknown page")

// do sends a request to the origin and decodes the response into out, unless out is nil.
func (o *Origin) do(ctx context.Context, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			return fmt.Errorf("encode the instruction: %w", err)
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, o.control+path, &body)
	if err != nil {
		return fmt.Errorf("instruct the origin: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := o.client.Do(request)
	if err != nil {
		return fmt.Errorf("instruct the origin: %w", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	switch {
	case err != nil:
		return fmt.Errorf("read the response of the origin: %w", err)
	case answer.StatusCode == http.StatusNotFound:
		return errNoPage
	case answer.StatusCode >= http.StatusMultipleChoices:
		return fmt.Errorf("instruct the origin: %s: %s", answer.Status, strings.TrimSpace(string(text)))
	case out == nil:
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("read the response of the origin: %w", err)
	}
	return nil
}

// Page is one URL of the origin. It is not safe for concurrent use.
type Page struct {
	origin      *Origin
	path        string
	instruction origin.Instruction
}

// Page returns the page at a path, which responds with 404 until it is set.
func (i *Installation) Page(path string) *Page { return i.Origin.Page(path) }

// URL returns the URL of the page for fetchers.
func (p *Page) URL() string { return p.origin.site + p.path }

// Says makes the page respond with 200 and a text.
func (p *Page) Says(ctx context.Context, text string) *Page {
	GinkgoHelper()
	return p.Serves(ctx, []byte(text))
}

// Serves makes the page respond with 200 and a body.
func (p *Page) Serves(ctx context.Context, body []byte) *Page {
	GinkgoHelper()
	p.origin.good.Store(good{p.URL(), sha256.Sum256(body)}, true)
	p.instruction.Status, p.instruction.Body = http.StatusOK, body
	return p.instruct(ctx)
}

// Fails makes the page respond with a status other than 200.
func (p *Page) Fails(ctx context.Context, status int) *Page {
	GinkgoHelper()
	p.instruction.Status, p.instruction.Body = status, nil
	return p.instruct(ctx)
}

// Requires makes the page respond with 401 to a request without that Authorization, from the next
// Says or Serves on.
func (p *Page) Requires(authorization string) *Page {
	p.instruction.Authorization = authorization
	return p
}

// Tagged makes the page send an ETag from the next Says or Serves on, and respond with 304 to a
// request with that ETag (RFC 9110 section 13.1.2).
func (p *Page) Tagged() *Page {
	p.instruction.Tagged = true
	return p
}

// Hold blocks requests until Release or the end of the spec.
func (p *Page) Hold(ctx context.Context) {
	GinkgoHelper()
	p.instruction.Held = true
	p.instruct(ctx)
	DeferCleanup(func(ctx SpecContext) { p.Release(ctx) })
}

// Release lets the held requests continue.
func (p *Page) Release(ctx context.Context) {
	GinkgoHelper()
	p.instruction.Held = false
	p.instruct(ctx)
}

// Hits returns the number of requests.
func (p *Page) Hits(ctx context.Context) int { return p.count(ctx).Hits }

// Waiting returns the number of held requests.
func (p *Page) Waiting(ctx context.Context) int { return p.count(ctx).Waiting }

// NotModified returns the number of responses with 304.
func (p *Page) NotModified(ctx context.Context) int { return p.count(ctx).NotModified }

// count returns the counters of the page, or zeros if the page was never set.
func (p *Page) count(ctx context.Context) (c origin.Count) {
	GinkgoHelper()
	if err := p.origin.do(ctx, http.MethodGet, p.path, nil, &c); !errors.Is(err, errNoPage) {
		Expect(err).NotTo(HaveOccurred())
	}
	return c
}

func (p *Page) instruct(ctx context.Context) *Page {
	GinkgoHelper()
	Expect(p.origin.do(ctx, http.MethodPut, p.path, p.instruction, nil)).To(Succeed())
	return p
}
