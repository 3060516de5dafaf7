package sentence_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/sentence"
)

func TestHost(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"https://data.example.com:8443/x?token=secret": "data.example.com",
		"http://user:secret@data.example.com":          "data.example.com",
		"https://10.0.0.1/x":                           "10.0.0.1",
		"https://[fe80::1%25eth0]:443/":                "fe80::1%eth0",
		"https://[2001:db8::1]/":                       "2001:db8::1",
		"":                                             "the host in the URL",
		"://":                                          "the host in the URL",
	} {
		if got := sentence.Host(url); got != want {
			t.Errorf("Host(%q) = %q, want %q", url, got, want)
		}
	}
}

// TestSentences has the sentences that neither the specs of fetcher/internal/get nor
// writer/internal/plan/testdata/events.golden have.
func TestSentences(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]*v1.Failure{
		"example.com responded with 204 (no content), but only 200 is accepted; use a URL that returns a body": {
			Class: v1.FailureClass_FAILURE_CLASS_BAD_STATUS, StatusCode: 204,
		},
		"example.com responded with 202, but only 200 is accepted; use a URL that responds with 200": {
			Class: v1.FailureClass_FAILURE_CLASS_BAD_STATUS, StatusCode: 202,
		},
		"example.com responded with 304 (not modified) although the request had no condition; use a URL that responds with " +
			"200": {
			Class: v1.FailureClass_FAILURE_CLASS_BAD_STATUS, StatusCode: 304,
		},
		"example.com asks for a pause: it responded with 404 and Retry-After": {
			Class: v1.FailureClass_FAILURE_CLASS_BAD_STATUS, StatusCode: 404,
			Detail: v1.FailureDetail_FAILURE_DETAIL_RETRY_AFTER,
		},
		"example.com responded with 300, which is not followed; use the URL that it leads to": {
			Class: v1.FailureClass_FAILURE_CLASS_BAD_STATUS, StatusCode: 300,
		},
		"fetching from example.com is not allowed: the host name has a single label or a reserved suffix, " +
			"and the port is not allowed": {
			Class: v1.FailureClass_FAILURE_CLASS_ADDRESS_DENIED, Detail: v1.FailureDetail_FAILURE_DETAIL_DENIED_NAME,
			Further: []v1.FailureDetail{v1.FailureDetail_FAILURE_DETAIL_DENIED_PORT},
		},
		"redirect 2 of example.com leads to a URL that is not allowed; " +
			"use a URL without that redirect, or ask the operator": {
			Class: v1.FailureClass_FAILURE_CLASS_ADDRESS_DENIED, Redirects: 2,
		},
		"example.com responded with 403; the credential of entry 2 of the header file was sent": {
			Class: v1.FailureClass_FAILURE_CLASS_BAD_STATUS, StatusCode: 403, Credential: "entry 2 of the header file",
		},
		"example.com responded with 401; the credential of Secret rules-api was sent": {
			Class: v1.FailureClass_FAILURE_CLASS_BAD_STATUS, StatusCode: 401, Credential: "Secret rules-api",
		},
		"example.com responded with 401": {
			Class: v1.FailureClass_FAILURE_CLASS_BAD_STATUS, StatusCode: 401, Credential: "text of a compromised fetcher",
		},
		"the request to example.com failed": {Class: 99, Detail: 99},
		"could not connect to example.com within 3s": {
			Class: v1.FailureClass_FAILURE_CLASS_TIMEOUT, Detail: v1.FailureDetail_FAILURE_DETAIL_CONNECT_TIMEOUT,
			TimeLimit: durationpb.New(3 * time.Second),
		},
	} {
		if got := sentence.Failure(&v1.Want{Url: "https://example.com/a?token=secret"}, f); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}

func TestRejectedContentQuotesTheExpression(t *testing.T) {
	t.Parallel()
	w := &v1.Want{
		Url: "https://rules.example.com/a?token=secret", Key: "rules.json", Select: "json.data",
		Expect: []string{"size(json.rules) > 0", strings.Repeat("x", 300)},
	}
	for want, f := range map[string]*v1.Failure{
		"does not meet rule 1 of curl-expect, size(json.rules) > 0":              {Rule: 1},
		"does not meet rule 2 of curl-expect, " + strings.Repeat("x", 199) + "…": {Rule: 2},
		"does not meet curl-expect":                                              {Rule: 3},
		"has nothing for curl-select, json.data: the body is not JSON": {
			Detail: v1.FailureDetail_FAILURE_DETAIL_NOT_JSON,
		},
		"has nothing for curl-select, json.data: the limit is 1,000 bytes": {LimitBytes: 1000},
	} {
		f.Class = v1.FailureClass_FAILURE_CLASS_CONTENT_REJECTED
		want = "rules.example.com: the response for rules.json " + want
		if got := sentence.Failure(w, f); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}

// A new detail is not terminal until this test lists it.
func TestOnlyFailuresThatNeedAnEditAreTerminal(t *testing.T) {
	t.Parallel()
	const byURL, byAddress = 1, 2
	terminal := map[v1.FailureDetail]int{
		v1.FailureDetail_FAILURE_DETAIL_DENIED_SCHEME:    byURL,
		v1.FailureDetail_FAILURE_DETAIL_DENIED_HOST:      byURL,
		v1.FailureDetail_FAILURE_DETAIL_HOST_NOT_ALLOWED: byURL,
		v1.FailureDetail_FAILURE_DETAIL_DENIED_NAME:      byURL,
		v1.FailureDetail_FAILURE_DETAIL_DENIED_PORT:      byURL,
		v1.FailureDetail_FAILURE_DETAIL_DENIED_URL:       byURL,
		v1.FailureDetail_FAILURE_DETAIL_DENIED_ADDRESS:   byAddress,
		v1.FailureDetail_FAILURE_DETAIL_DENIED_RANGE:     byAddress,
	}
	for n, name := range v1.FailureDetail_name {
		f := &v1.Failure{Class: v1.FailureClass_FAILURE_CLASS_ADDRESS_DENIED, Detail: v1.FailureDetail(n)}
		by := terminal[f.GetDetail()]
		if got := sentence.Terminal("https://example.com/a", f); got != (by == byURL) {
			t.Errorf("%s of a name: %t", name, got)
		}
		if got := sentence.Terminal("https://[2001:db8::1]/a", f); got != (by != 0) {
			t.Errorf("%s of an address: %t", name, got)
		}
		f.Redirects = 1
		if sentence.Terminal("https://[2001:db8::1]/a", f) {
			t.Errorf("%s of a redirect, which a server chose", name)
		}
	}
}

func TestNextAttempt(t *testing.T) {
	t.Parallel()
	observed := time.Date(2026, 11, 22, 22, 10, 0, 0, time.UTC)
	for want, f := range map[string]*v1.Failure{
		"":                   {},
		"next attempt in 4s": {NextAt: timestamppb.New(observed.Add(4100 * time.Millisecond))},
		"next attempt in 1s": {NextAt: timestamppb.New(observed.Add(100 * time.Millisecond))},
		"next attempt in 20m, as the host requested": {
			NextAt: timestamppb.New(observed.Add(20*time.Minute + 3*time.Second)), WaitsFor: v1.WaitsFor_WAITS_FOR_PAUSE,
		},
		"giving up after 6 attempts; next try at 23:10 UTC, then hourly": {
			GaveUp: true, Attempts: 6, NextAt: timestamppb.New(observed.Add(time.Hour)), Interval: durationpb.New(time.Hour),
		},
		"giving up after 6 attempts; next try at 00:10 UTC, as the host requested": {
			GaveUp: true, Attempts: 6, NextAt: timestamppb.New(observed.Add(2 * time.Hour)),
			WaitsFor: v1.WaitsFor_WAITS_FOR_PAUSE,
		},
		"next try at 22:11 UTC, then every 1m": {
			Class: v1.FailureClass_FAILURE_CLASS_CONTENT_REJECTED, GaveUp: true, Attempts: 1,
			NextAt: timestamppb.New(observed.Add(time.Minute)), Interval: durationpb.New(time.Minute),
		},
		"giving up after 6 attempts; next try at 22:11 UTC": {
			Class: v1.FailureClass_FAILURE_CLASS_CONTENT_REJECTED, Detail: v1.FailureDetail_FAILURE_DETAIL_COSTLY,
			GaveUp: true, Attempts: 6, NextAt: timestamppb.New(observed.Add(time.Minute)),
		},
		"giving up after 1 attempt; next try at 22:11 UTC": {
			GaveUp: true, Attempts: 1,
			NextAt: timestamppb.New(observed.Add(time.Minute)),
		},
	} {
		if got := sentence.Next(f, observed); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}

// Every class and detail has words, even if a later version adds it.
func TestEveryDetailHasWords(t *testing.T) {
	t.Parallel()
	for n, name := range v1.FailureDetail_name {
		if n != 0 && sentence.Detail(&v1.Failure{Detail: v1.FailureDetail(n)}) == "" {
			t.Errorf("%s has no words", name)
		}
	}
	for n, name := range v1.FailureClass_name {
		s := sentence.Failure(&v1.Want{Url: "https://example.com"}, &v1.Failure{Class: v1.FailureClass(n)})
		if !strings.Contains(s, "example.com") || strings.Contains(s, failure.Reason(v1.FailureClass(n))) {
			t.Errorf("%s has the sentence %q", name, s)
		}
	}
	page, err := os.ReadFile("../../deploy/docs/why-empty.md")
	if err != nil {
		t.Fatal(err)
	}
	for n, name := range v1.FailureClass_name {
		_, cause, _ := strings.Cut(sentence.WhyEmpty(v1.FailureClass(n)), "deploy/docs/why-empty.md#")
		if cause == "" {
			continue
		}
		if _, section, found := strings.Cut(string(page), fmt.Sprintf("\n<a id=%q></a>\n\n## %s. ", cause, cause)); !found ||
			!strings.Contains(strings.Split(section, "\n## ")[0], failure.Reason(v1.FailureClass(n))) {
			t.Errorf("%s: part %s of why-empty.md does not explain it", name, cause)
		}
	}
	for n, name := range v1.WaitsFor_name {
		if (sentence.WaitsFor(v1.WaitsFor(n), "https://example.com") == "") != (n == 0) {
			t.Errorf("%s has no words", name)
		}
	}
}
