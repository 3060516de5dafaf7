module github.com/kv8s/curl-me-that/proto

go 1.26.0

require google.golang.org/protobuf v1.36.12
