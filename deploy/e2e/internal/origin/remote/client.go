package remote

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
)

// requestTimeout is for one instruction, through an API server perhaps.
const requestTimeout = 10 * time.Second

// Origin is a test's hold on an origin that runs elsewhere. It records every
// good body that it has let the origin give.
type Origin struct {
	client  *http.Client
	control string
	site    string

	mu   sync.Mutex
	good map[string]map[[sha256.Size]byte]struct{} // by URL of the page
}

// New returns a client for the control URL of an origin. Fetchers reach the origin at the
// URL site. All pages are below folder, which separates tests.
func New(client *http.Client, control, site, folder string) *Origin {
	folder = "/" + strings.Trim(folder, "/")
	return &Origin{
		client:  client,
		control: strings.TrimSuffix(control, "/") + prefix + folder,
		site:    strings.TrimSuffix(site, "/") + folder,
		good:    map[string]map[[sha256.Size]byte]struct{}{},
	}
}

// Page returns the page at a path below the folder. Nothing is sent to the
// origin yet, which responds 404 for it.
func (o *Origin) Page(path string) *Page {
	return &Page{origin: o, path: path, instruction: Instruction{Status: http.StatusNotFound}}
}

// Served reports whether the origin was ever set to respond with that body for a
// URL, whatever its query.
func (o *Origin) Served(url string, body []byte) bool {
	url, _, _ = strings.Cut(url, "?")
	o.mu.Lock()
	defer o.mu.Unlock()
	_, found := o.good[url][sha256.Sum256(body)]
	return found
}

// Forget makes the origin forget all pages below the folder.
func (o *Origin) Forget(ctx context.Context) error { return o.do(ctx, http.MethodDelete, "", nil, nil) }

func (o *Origin) remember(url string, body []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.good[url] == nil {
		o.good[url] = map[[sha256.Size]byte]struct{}{}
	}
	o.good[url][sha256.Sum256(body)] = struct{}{}
}

// errNoPage means that the origin does not have the page.
var errNoPage = errors.New("unknown page")

// do sends one request to the origin and decodes its answer into out, if any.
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
		return fmt.Errorf("read the answer of the origin: %w", err)
	case answer.StatusCode == http.StatusNotFound:
		return errNoPage
	case answer.StatusCode >= http.StatusMultipleChoices:
		return fmt.Errorf("instruct the origin: %s: %s", answer.Status, strings.TrimSpace(string(text)))
	case out == nil:
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("read the answer of the origin: %w", err)
	}
	return nil
}
