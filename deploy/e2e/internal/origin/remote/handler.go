// Package remote takes the instructions of a test for an origin that runs elsewhere.
package remote

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin"
)

// Prefix of the paths of instructions.
const Prefix = "/pages"

// Handler takes instructions for the pages of a site:
//
//	PUT    /pages/PATH   an Instruction for the page at PATH
//	GET    /pages/PATH   the Count of the page
//	DELETE /pages/PATH   forgets the page and all below it
//
// Serve it on a network that fetchers do not reach.
func Handler(site *origin.Site) http.Handler {
	h := &handler{site: site, releases: map[string]func(){}}
	mux := http.NewServeMux()
	mux.HandleFunc("PUT "+Prefix+"/", h.put)
	mux.HandleFunc("GET "+Prefix+"/", h.get)
	mux.HandleFunc("DELETE "+Prefix+"/", h.delete)
	return mux
}

type handler struct {
	site *origin.Site

	mu       sync.Mutex
	releases map[string]func() // by path of the page that is held
}

func (h *handler) put(w http.ResponseWriter, r *http.Request) {
	var i Instruction
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&i); err != nil {
		http.Error(w, "invalid instruction: "+err.Error(), http.StatusBadRequest)
		return
	}
	if wrong := i.valid(); wrong != "" {
		http.Error(w, wrong, http.StatusBadRequest)
		return
	}
	path := pagePath(r)
	if h.site.Find(path) == nil && h.site.Len() >= maxPages {
		http.Error(w, fmt.Sprintf("there are %d pages already", maxPages), http.StatusInsufficientStorage)
		return
	}
	h.follow(path, i)
	w.WriteHeader(http.StatusNoContent)
}

// follow carries an instruction out. A page is held before and let go after its
// response is set.
func (h *handler) follow(path string, i Instruction) {
	h.mu.Lock()
	defer h.mu.Unlock()
	page, release := h.site.Page(path), h.releases[path]
	if i.Held && release == nil {
		h.releases[path] = page.Hold()
	}
	if i.Tagged {
		page.Tagged()
	}
	page.Requires(i.Authorization)
	if i.Status == http.StatusOK {
		page.Serves(i.Body)
	} else {
		page.Fails(i.Status)
	}
	if !i.Held && release != nil {
		release()
		delete(h.releases, path)
	}
}

func (h *handler) get(w http.ResponseWriter, r *http.Request) {
	page := h.site.Find(pagePath(r))
	if page == nil {
		http.Error(w, "unknown page", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	count := Count{Hits: page.Hits(), Waiting: page.Waiting(), NotModified: page.NotModified()}
	_ = json.NewEncoder(w).Encode(count) // the client is gone if it fails
}

func (h *handler) delete(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.site.Forget(pagePath(r))
	for path := range h.releases {
		if h.site.Find(path) == nil {
			delete(h.releases, path)
		}
	}
	w.WriteHeader(http.StatusNoContent)
}

func pagePath(r *http.Request) string { return r.URL.Path[len(Prefix):] }

// Instruction sets a page. It is the body of PUT /pages/PATH.
type Instruction struct {
	// Status to answer, from 200 to 599.
	Status int `json:"status"`
	// Body of a response with status 200, at most MaxBody bytes, base64 in JSON.
	Body []byte `json:"body,omitempty"`
	// Tagged makes the page send an ETag, and respond with 304 to a request with that ETag. It
	// cannot be undone.
	Tagged bool `json:"tagged,omitempty"`
	// Authorization is the header without which the response is 401 (empty means none).
	Authorization string `json:"authorization,omitempty"`
	// Held blocks requests until an instruction without Held.
	Held bool `json:"held,omitempty"`
}

// Count has the counters of a page. It is the response to GET /pages/PATH.
type Count struct {
	// Hits is the number of requests, Waiting the number of held requests, and NotModified the
	// number of responses with 304.
	Hits        int `json:"hits"`
	Waiting     int `json:"waiting"`
	NotModified int `json:"notModified"`
}

const (
	// maxBody is the maximum size of a body in bytes, twice the size of a ConfigMap.
	maxBody = 2 << 20
	// maxPages is the maximum number of pages of an origin.
	maxPages = 10_000
	// maxRequest has room for a body in base64.
	maxRequest = maxBody/3*4 + 4096
)

func (i Instruction) valid() string {
	switch {
	case i.Status < http.StatusOK || i.Status > 599:
		return "status must be from 200 to 599"
	case len(i.Body) > maxBody:
		return "body is larger than 2 MiB"
	}
	return ""
}
