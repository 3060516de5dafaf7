package remote

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin"
)

// prefix of the paths of instructions.
const prefix = "/pages"

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
	mux.HandleFunc("PUT "+prefix+"/", h.put)
	mux.HandleFunc("GET "+prefix+"/", h.get)
	mux.HandleFunc("DELETE "+prefix+"/", h.delete)
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

func pagePath(r *http.Request) string { return r.URL.Path[len(prefix):] }
