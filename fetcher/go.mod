module github.com/kv8s/curl-me-that/fetcher

go 1.26.0

require (
	code.dny.dev/ssrf v0.3.0
	github.com/kv8s/curl-me-that/proto v0.0.0
	go.yaml.in/yaml/v3 v3.0.6
)

require google.golang.org/protobuf v1.36.12 // indirect

replace github.com/kv8s/curl-me-that/proto => ../proto
