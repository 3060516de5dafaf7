package origin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// controlPrefix of the paths of instructions.
const controlPrefix = "/pages"

// Instruction sets the response of a page. It is the body of PUT /pages/PATH.
type Instruction struct {
	// Status of the response.
	Status int `json:"status"`
	// Body of a response with status 200.
	Body []byte `json:"body,omitempty"`
	// Tagged makes the page send an ETag, and respond with 304 to a request with that ETag.
	Tagged bool `json:"tagged,omitempty"`
	// Authorization is the header without which the response is 401 (empty means none).
	Authorization string `json:"authorization,omitempty"`
}

// count has the counters of a page. It is the response to GET /pages/PATH.
type count struct {
	// Hits is the number of requests, and NotModified the number of responses with 304.
	Hits        int `json:"hits"`
	NotModified int `json:"notModified"`
}

// maxRequest has room for a body of 2 MiB in base64, twice the size of a ConfigMap.
const maxRequest = 3 << 20

// Control takes instructions for the pages of a site:
//
//	PUT    /pages/PATH   an Instruction for the page at PATH
//	GET    /pages/PATH   the counters of the page
//	DELETE /pages/PATH   forgets the page and all below it
//
// Serve it on a network that fetchers do not reach.
func Control(site *Site) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT "+controlPrefix+"/", func(w http.ResponseWriter, r *http.Request) {
		var i Instruction
		decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&i); err != nil {
			http.Error(w, "invalid instruction: "+err.Error(), http.StatusBadRequest)
			return
		}
		page := site.Page(pagePath(r))
		page.set(func() { page.is = i })
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET "+controlPrefix+"/", func(w http.ResponseWriter, r *http.Request) {
		page := site.Find(pagePath(r))
		if page == nil {
			http.Error(w, "unknown page", http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(count{page.Hits(), page.NotModified()}) // the client is gone if it fails
	})
	mux.HandleFunc("DELETE "+controlPrefix+"/", func(w http.ResponseWriter, r *http.Request) {
		site.Forget(pagePath(r))
		w.WriteHeader(http.StatusNoContent)
	})
	return mux
}

func pagePath(r *http.Request) string { return r.URL.Path[len(controlPrefix):] }

// requestTimeout is the time limit of an instruction, which may pass through the API server.
const requestTimeout = 10 * time.Second

// remote is the control of an origin that runs elsewhere.
type remote struct {
	client *http.Client
	url    string
	fail   func(error)
}

// NewRemote returns a server whose pages an origin elsewhere serves. client reaches its control, and fetchers reach its
// pages at the URL base. All pages are in folder, which keeps tests apart. fail receives errors.
func NewRemote(client *http.Client, control, base, folder string, fail func(error)) *Server {
	site := NewSite(strings.TrimSuffix(base, "/") + "/" + folder)
	limited := &http.Client{Transport: client.Transport, Timeout: requestTimeout}
	site.remote = &remote{limited, strings.TrimSuffix(control, "/") + controlPrefix + "/" + folder, fail}
	return &Server{Site: site}
}

// ForgetAll makes the origin elsewhere forget all pages.
func (s *Site) ForgetAll() { s.remote.do(http.MethodDelete, "", nil, nil) }

// count returns the counters of a page.
func (r *remote) count(path string) (c count) {
	r.do(http.MethodGet, path, nil, &c)
	return c
}

// do sends a request and decodes the response into out, unless out is nil.
func (r *remote) do(method, path string, in, out any) {
	if err := r.try(method, path, in, out); err != nil {
		r.fail(fmt.Errorf("instruct the origin: %w", err))
	}
}

func (r *remote) try(method, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	request, err := http.NewRequest(method, r.url+path, bytes.NewReader(body)) //nolint:noctx // it has a time limit
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := r.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err == nil && response.StatusCode >= http.StatusMultipleChoices {
		err = fmt.Errorf("%s: %s", response.Status, strings.TrimSpace(string(text)))
	}
	if err != nil || out == nil {
		return err
	}
	return json.Unmarshal(text, out)
}
