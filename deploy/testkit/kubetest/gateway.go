package kubetest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Fault handles a request instead of passing it on.
type Fault func(pass http.Handler, w http.ResponseWriter, r *http.Request)

// Rule returns the fault for a request, or nil to let it pass.
type Rule func(r *http.Request) Fault

// Gateway is a reverse proxy between a service and a real API server, on loopback. It injects faults: errors, lost
// responses and silence. It is safe for concurrent use.
type Gateway struct {
	server *httptest.Server
	proxy  *httputil.ReverseProxy

	mu     sync.Mutex
	rule   Rule
	healed chan struct{} // closed when the rule ends
	counts map[string]int
}

// StartGateway runs a gateway to a cluster. Close must be called.
func StartGateway(config *rest.Config) (*Gateway, error) {
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("reach the cluster: %w", err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, fmt.Errorf("read the address of the cluster: %w", err)
	}
	g := &Gateway{counts: map[string]int{}}
	g.proxy = &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // events of a watch must not wait
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {
			panic(http.ErrAbortHandler) // drop the connection, as without a gateway
		},
	}
	g.server = httptest.NewServer(g)
	return g, nil
}

// Close ends the gateway and its connections.
func (g *Gateway) Close() {
	g.Heal()
	g.server.CloseClientConnections()
	g.server.Close()
}

// ServeHTTP passes a request on, unless the rule has a fault for it.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	rule, healed := g.rule, g.healed
	g.counts[r.Method]++
	g.mu.Unlock()
	var fault Fault
	if rule != nil {
		fault = rule(r)
	}
	if fault == nil {
		g.proxy.ServeHTTP(w, r)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() {
		select {
		case <-healed:
			cancel()
		case <-ctx.Done():
		}
	}()
	fault(g.proxy, w, r.WithContext(ctx))
}

// Break applies a rule and aborts open requests, including watches.
func (g *Gateway) Break(rule Rule) {
	g.set(rule)
	g.server.CloseClientConnections()
}

// Heal ends all faults. Requests held by a fault fail.
func (g *Gateway) Heal() { g.set(nil) }

func (g *Gateway) set(rule Rule) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.healed != nil {
		close(g.healed)
	}
	g.rule, g.healed = rule, make(chan struct{})
}

// Requests returns the number of requests with that method.
func (g *Gateway) Requests(method string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.counts[method]
}

// URL returns the address of the gateway. Clients get the permissions of the gateway.
func (g *Gateway) URL() string { return g.server.URL }

// Answer responds with an error, like an overloaded or broken API server.
func Answer(e *apierrors.StatusError) Fault {
	return func(_ http.Handler, w http.ResponseWriter, _ *http.Request) {
		if seconds, is := apierrors.SuggestsClientDelay(e); is {
			w.Header().Set("Retry-After", strconv.Itoa(seconds))
		}
		status := e.Status()
		status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(int(status.Code))
		_ = json.NewEncoder(w).Encode(status)
	}
}

// WithholdAnswer forwards a request and withholds the response.
func WithholdAnswer(pass http.Handler, _ http.ResponseWriter, r *http.Request) {
	pass.ServeHTTP(httptest.NewRecorder(), r)
	<-r.Context().Done()
	panic(http.ErrAbortHandler)
}

// Silence never responds, like a network that drops packets.
func Silence(_ http.Handler, _ http.ResponseWriter, r *http.Request) {
	<-r.Context().Done()
	panic(http.ErrAbortHandler)
}

// All applies a fault to every request.
func All(f Fault) Rule { return func(*http.Request) Fault { return f } }

// Method applies a fault to requests with that method.
func Method(method string, f Fault) Rule {
	return func(r *http.Request) Fault {
		if r.Method == method {
			return f
		}
		return nil
	}
}
