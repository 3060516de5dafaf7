package remote

import "net/http"

// Instruction sets a page. It is the body of PUT /pages/PATH.
type Instruction struct {
	// Status to answer, from 200 to 599.
	Status int `json:"status"`
	// Body of a response with status 200, at most MaxBody bytes, base64 in JSON.
	Body []byte `json:"body,omitempty"`
	// Tagged makes the page send an ETag, and respond with 304 to a request with that ETag. It
	// cannot be undone.
	Tagged bool `json:"tagged,omitempty"`
	// Authorization is the header without which the response is 401; empty means none.
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
