module github.com/kv8s/curl-me-that/writer

go 1.26.0

require github.com/kv8s/curl-me-that/proto v0.0.0

replace github.com/kv8s/curl-me-that/proto => ../proto
