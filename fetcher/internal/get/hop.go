package get

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/kv8s/curl-me-that/proto/rule"
)

type hopKey struct{}

// WithHops returns a context with which Do reports each request and its response, for a person who looks for the
// cause of a failure: without queries and values of credentials, but with text of the server.
func WithHops(ctx context.Context, report func(sent, received string)) context.Context {
	return context.WithValue(ctx, hopKey{}, report)
}

// shownHeaders are the headers of a response that decide, or that help to understand it.
var shownHeaders = []string{
	"Location", "Retry-After", "Content-Type", "Content-Length", "Content-Encoding", "Etag", "Last-Modified", "Date",
	"Www-Authenticate", "Server",
}

// report reports a hop, if anyone asked. The answer may be nil.
func (x *exchange) report(request *http.Request, u *url.URL, answer *http.Response) {
	report, asked := request.Context().Value(hopKey{}).(func(sent, received string))
	if !asked {
		return
	}
	sent, received := "GET "+hideQuery(written(u)), "no response"
	plain := x.headers(u, credentials{})
	for _, name := range slices.Sorted(maps.Keys(request.Header)) {
		value := request.Header.Get(name)
		if plain.Get(name) != value {
			value = "(hidden)"
		}
		sent += "; " + name + ": " + value
	}
	if answer != nil {
		received = strconv.Itoa(answer.StatusCode)
		for _, name := range shownHeaders {
			if value := answer.Header.Get(name); value != "" {
				received += "; " + name + ": " + rule.Shortened(hideQuery(value))
			}
		}
	}
	report(sent, received)
}

// hideQuery replaces a query by a mark. Unlike weburl.WithoutQuery it takes any text, such as a relative Location.
func hideQuery(text string) string {
	shown, query, _ := strings.Cut(text, "?")
	if query != "" {
		shown += "?…"
	}
	return shown
}
