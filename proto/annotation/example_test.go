package annotation_test

import (
	"fmt"

	"github.com/kv8s/curl-me-that/proto/annotation"
)

func ExampleGrammar_Parse() {
	grammar, err := annotation.New(annotation.Defaults())
	if err != nil {
		panic(err)
	}
	request, err := grammar.Parse(map[string]string{
		"x-kv8s.io/curl-me-that": "ca.pem=https://example.com/ca.pem motd=example.com/motd news=ftp://example.com/",
		"x-kv8s.io/curl-refresh": "1h motd=10m",
	})
	if err != nil {
		panic(err)
	}
	for _, pair := range request.Pairs {
		fmt.Println(pair.Key, pair.URL, request.Interval(pair.Key))
	}
	for _, problem := range request.Problems {
		fmt.Println(problem.Key, problem.Text)
	}
	// Output:
	// ca.pem https://example.com/ca.pem 1h0m0s
	// motd https://example.com/motd 10m0s
	// news annotation curl-me-that, pair 3 (key news): the scheme must be http or https; use http:// or https://
}
