package get_test

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/fetcher/internal/get"
)

var _ = Describe("the sentence about a response", func() {
	DescribeTable("names the cause only if it is known",
		func(ctx SpecContext, response, sentence string) {
			url := urlOf(serve(say("HTTP/1.1 "+response+"\r\n"+length(0))), "/")
			Expect(errorOf(newClient().Do(ctx, get.Request{URL: url}))).To(MatchError(sentence))
		},
		Entry(nil, "401 No", "data.example.com responded with 401; no credential is configured for this URL and namespace"),
		Entry(nil, "403 No", "data.example.com responded with 403; no credential is configured for this URL and namespace, "+
			"or the server rejects the User-Agent, which a header entry can change"),
		Entry(nil, "403 Limit\r\nRetry-After: 20",
			"data.example.com limits the rate of requests: it responded with 403 and Retry-After"),
		Entry(nil, "202 Wait\r\nRetry-After: 20",
			"data.example.com does not have the body ready yet: it responded with 202 and Retry-After"),
		Entry(nil, "206 Partial", "data.example.com responded with 206 (partial content) although no part was requested; "+
			"use a URL that responds with 200"),
		Entry(nil, "302 Found\r\nLocation: ftp://data.example.com/", "redirect 1 of data.example.com leads to a URL that is "+
			"not allowed: the scheme must be http or https; use a URL without that redirect"),
		Entry(nil, "302 Found\r\nLocation: //"+secret+"@data.example.com/", "redirect 1 of data.example.com leads to a URL "+
			"that is not allowed: the URL or its host name is not valid; use a URL without that redirect"),
		Entry(nil, "302 Found\r\nLocation: /"+strings.Repeat("x", 9000), "data.example.com sent an unusable response: a "+
			"redirect whose Location is missing, has no valid host or is longer than 8,192 characters; use a URL without that "+
			"redirect"),
		Entry(nil, "302 Found\r\nLocation: http://data_1.example.com/", "data.example.com sent an unusable response: a "+
			"redirect whose Location is missing, has no valid host or is longer than 8,192 characters; use a URL without that "+
			"redirect"),
	)

	It("does not take a User-Agent for a credential, and hides the values of credentials in hops", func(ctx SpecContext) {
		port := serve(say("HTTP/1.1 403 No\r\nServer: a\r\n" + length(0)))
		cfg.HeaderFile = writeFile("headers.yaml", fmt.Sprintf(
			"- {host: %s, namespaces: [team-a], schemes: [http], ports: [%d], headers: {user-agent: b}}\n"+
				"- {host: %s, namespaces: [team-b], schemes: [http], ports: [%d], headers: {X-Key: %s}}\n",
			host, port, host, port, secret))
		client := newClient()
		var hops []string
		observer := &get.Observer{Hop: func(sent, received string) { hops = append(hops, sent, received) }}
		credential := func(namespace, path string) string {
			r := get.Request{URL: urlOf(port, path), Namespace: namespace, Observer: observer}
			return errorOf(client.Do(ctx, r)).Credential
		}
		Expect(credential("team-a", "/{x}?q")).To(BeEmpty())
		Expect(credential("team-b", "/")).NotTo(BeEmpty())
		Expect(hops).To(Equal([]string{
			"GET " + urlOf(port, "/{x}?…") + "; Accept: */*; Accept-Encoding: identity; User-Agent: (hidden)",
			"403; Content-Length: 0; Server: a",
			"GET " + urlOf(port, "/") + "; Accept: */*; Accept-Encoding: identity; " +
				"User-Agent: curl-me-that/v1.2.3 (+https://github.com/kv8s/curl-me-that); X-Key: (hidden)",
			"403; Content-Length: 0; Server: a",
		}))
	})
})
