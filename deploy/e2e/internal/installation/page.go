package installation

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin/remote"
	"github.com/kv8s/curl-me-that/proto/suitetest"
)

// Page is one URL of the origin.
type Page struct{ page *remote.Page }

// Page returns the page at a path, which responds with 404 until it is set.
func (i *Installation) Page(path string) *Page { return &Page{page: i.Origin.Page(path)} }

// URL of the page, for the fetchers.
func (p *Page) URL() string { return p.page.URL() }

// Says makes the page respond with 200 and a text.
func (p *Page) Says(ctx context.Context, text string) *Page {
	GinkgoHelper()
	Expect(p.page.Says(ctx, text)).To(Succeed())
	return p
}

// Serves makes the page respond with 200 and a body.
func (p *Page) Serves(ctx context.Context, body []byte) *Page {
	GinkgoHelper()
	Expect(p.page.Serves(ctx, body)).To(Succeed())
	return p
}

// Fails makes the page respond with a status other than 200.
func (p *Page) Fails(ctx context.Context, status int) *Page {
	GinkgoHelper()
	Expect(p.page.Fails(ctx, status)).To(Succeed())
	return p
}

// Requires makes the page respond with 401 to a request without that Authorization, from the next
// Says or Serves on.
func (p *Page) Requires(authorization string) *Page {
	p.page.Requires(authorization)
	return p
}

// Tagged makes the page send an ETag from the next Says or Serves on.
func (p *Page) Tagged() *Page {
	p.page.Tagged()
	return p
}

// Hold blocks requests until Release or the end of the spec.
func (p *Page) Hold(ctx context.Context) {
	GinkgoHelper()
	Expect(p.page.Hold(ctx)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { p.Release(ctx) })
}

// Release answers the requests that wait.
func (p *Page) Release(ctx context.Context) {
	GinkgoHelper()
	Expect(p.page.Release(ctx)).To(Succeed())
}

// Hits returns the number of requests.
func (p *Page) Hits(ctx context.Context) int { return p.count(ctx).Hits }

// Waiting returns the number of held requests.
func (p *Page) Waiting(ctx context.Context) int { return p.count(ctx).Waiting }

// NotModified returns the number of responses with 304.
func (p *Page) NotModified(ctx context.Context) int { return p.count(ctx).NotModified }

func (p *Page) count(ctx context.Context) remote.Count {
	GinkgoHelper()
	return suitetest.Must(p.page.Count(ctx))
}
