module github.com/kv8s/curl-me-that/deploy/e2e

go 1.26.0

require (
	github.com/kv8s/curl-me-that/fetcher v0.0.0
	github.com/kv8s/curl-me-that/proto v0.0.0
	github.com/kv8s/curl-me-that/watcher v0.0.0
	github.com/kv8s/curl-me-that/writer v0.0.0
)

replace (
	github.com/kv8s/curl-me-that/fetcher => ../../fetcher
	github.com/kv8s/curl-me-that/proto => ../../proto
	github.com/kv8s/curl-me-that/watcher => ../../watcher
	github.com/kv8s/curl-me-that/writer => ../../writer
)

require github.com/kv8s/curl-me-that/deploy/local v0.0.0

replace github.com/kv8s/curl-me-that/deploy/local => ../local
