package writer_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kv8s/curl-me-that/deploy/testkit/kubetest"
)

// send forwards a request to the real API server.
type send = func(*http.Request) (*http.Response, error)

var errCut = errors.New("the connection was cut")

// failing fails every request for a resource.
func (c *calls) failing(resource string) {
	c.with(func(r *http.Request, next send) (*http.Response, error) {
		if strings.Contains(r.URL.Path, "/"+resource) {
			return nil, errCut
		}
		return next(r)
	})
}

// unreachable fails every request.
func (c *calls) unreachable() {
	c.with(func(*http.Request, send) (*http.Response, error) { return nil, errCut })
}

// forbidding answers requests of a method like an API server whose user lacks the permission for a verb.
func (c *calls) forbidding(method, verb, resource string) {
	c.with(func(r *http.Request, next send) (*http.Response, error) {
		if r.Method != method {
			return next(r)
		}
		answer := httptest.NewRecorder()
		kubetest.Answer(apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "",
			fmt.Errorf(`User "writer" cannot %s resource %q in API group ""`, verb, resource)))(nil, answer, r)
		return answer.Result(), nil
	})
}

// calls records the requests of the writer and can tamper with them.
type calls struct {
	mu   sync.Mutex
	seen []string
	// largest is the size of the largest request.
	largest atomic.Int64
	tamper  func(r *http.Request, next send) (*http.Response, error)
}

func (c *calls) wrap(next http.RoundTripper) http.RoundTripper {
	return kubetest.RoundTripper(func(r *http.Request) (*http.Response, error) {
		c.mu.Lock()
		c.largest.Store(max(c.largest.Load(), r.ContentLength))
		tamper := c.tamper
		if r.URL.Path != "/readyz" {
			c.seen = append(c.seen, kindOf(r))
		}
		c.mu.Unlock()
		if tamper != nil {
			return tamper(r, next.RoundTrip)
		}
		return next.RoundTrip(r)
	})
}

// with passes every request through tamper. Nil stops tampering.
func (c *calls) with(tamper func(r *http.Request, next send) (*http.Response, error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tamper = tamper
}

// all returns the requests since the last reset.
func (c *calls) all() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.seen...)
}

// count returns the number of requests of a kind since the last reset.
func (c *calls) count(kind string) (n int) {
	for _, seen := range c.all() {
		if seen == kind {
			n++
		}
	}
	return n
}

func (c *calls) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = nil
}

// kindOf returns the method and the resource of a request.
func kindOf(r *http.Request) string {
	resource := "other"
	for _, known := range []string{"configmaps", "events"} {
		if strings.Contains(r.URL.Path, "/"+known) {
			resource = known
		}
	}
	return r.Method + " " + resource
}
