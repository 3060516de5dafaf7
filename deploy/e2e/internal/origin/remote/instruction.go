package remote

import "net/http"

// Instruction sets a page. It is the body of PUT /pages/PATH.
type Instruction struct {
	// Status to answer, from 200 to 599.
	Status int `json:"status"`
	// Body of a response with status 200, at most MaxBody bytes, base64 in JSON.
	Body []byte `json:"body,omitempty"`
	// Tagged lets the page send an ETag, and answer 304 to a request that names it.
	// It cannot be taken back.
	Tagged bool `json:"tagged,omitempty"`
	// Held lets requests wait for an answer until an instruction is not held.
	Held bool `json:"held,omitempty"`
}

// Count has the counters of a page. It is the response to GET /pages/PATH.
type Count struct {
	// Hits is how many requests came, Waiting how many are being held, and
	// NotModified how many of them got a 304.
	Hits        int `json:"hits"`
	Waiting     int `json:"waiting"`
	NotModified int `json:"notModified"`
}

const (
	// maxBody is the maximum size of a body in bytes, twice the size of a ConfigMap.
	maxBody = 2 << 20
	// maxPages is how many pages an origin keeps.
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
