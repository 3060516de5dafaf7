package writer_test

import (
	"slices"
	"strings"

	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// marshal returns the payload of a result.
func marshal(r *v1.Result) []byte {
	data, err := proto.Marshal(r)
	Expect(err).NotTo(HaveOccurred())
	return data
}

// resultSubject returns where a result is published.
func resultSubject(r *v1.Result) string {
	key := pipeline.KeyOf(r.GetWant())
	switch {
	case r.GetFailure() != nil:
		return key.Failure()
	case r.GetRemoved() != nil:
		return key.Removed()
	}
	return key.Content()
}

func containsSegment(path, segment string) bool {
	return slices.Contains(strings.Split(path, "/"), segment)
}
