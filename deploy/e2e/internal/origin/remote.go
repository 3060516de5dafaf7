package origin

import (
	"encoding/json"
	"net/http"
)

// ControlPrefix of the paths of instructions.
const ControlPrefix = "/pages"

// Control takes instructions for the pages of a site:
//
//	PUT    /pages/PATH   an Instruction for the page at PATH
//	GET    /pages/PATH   the Count of the page
//	DELETE /pages/PATH   forgets the page and all below it
//
// Serve it on a network that fetchers do not reach.
func Control(site *Site) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT "+ControlPrefix+"/", func(w http.ResponseWriter, r *http.Request) {
		var i Instruction
		decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&i); err != nil {
			http.Error(w, "invalid instruction: "+err.Error(), http.StatusBadRequest)
			return
		}
		i.follow(site.Page(pagePath(r)))
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET "+ControlPrefix+"/", func(w http.ResponseWriter, r *http.Request) {
		page := site.Find(pagePath(r))
		if page == nil {
			http.Error(w, "unknown page", http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		count := Count{Hits: page.Hits(), Waiting: page.Waiting(), NotModified: page.NotModified()}
		_ = json.NewEncoder(w).Encode(count) // the client is gone if it fails
	})
	mux.HandleFunc("DELETE "+ControlPrefix+"/", func(w http.ResponseWriter, r *http.Request) {
		site.Forget(pagePath(r))
		w.WriteHeader(http.StatusNoContent)
	})
	return mux
}

// follow applies an instruction. It holds the page before it changes the response, and releases it afterwards,
// so that held requests get the new response.
func (i Instruction) follow(page *Page) {
	if i.Held {
		page.Hold()
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
	if !i.Held {
		page.Release()
	}
}

func pagePath(r *http.Request) string { return r.URL.Path[len(ControlPrefix):] }

// Instruction sets the response of a page. It is the body of PUT /pages/PATH.
type Instruction struct {
	// Status of the response.
	Status int `json:"status"`
	// Body of a response with status 200.
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

// maxRequest has room for a body of 2 MiB in base64, twice the size of a ConfigMap.
const maxRequest = 3 << 20
