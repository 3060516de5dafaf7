package writer_test

import (
	"slices"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// marshal returns the payload of a result.
func marshal(r *v1.Result) []byte {
	return must(proto.Marshal(r))
}

// resultSubject returns the subject of a result.
func resultSubject(r *v1.Result) string {
	key := pipeline.KeyOf(r.GetWant())
	switch {
	case r.GetFailure() != nil:
		return key.Failure()
	case r.GetReconcile() != nil:
		return key.Reconcile()
	}
	return key.Content()
}

func containsSegment(path, segment string) bool {
	return slices.Contains(strings.Split(path, "/"), segment)
}

// deadLetters returns the dead letters, oldest first.
func (w *world) deadLetters() []*v1.DeadLetter {
	GinkgoHelper()
	stream := must(w.js.Stream(w.ctx(), pipeline.Failures))
	state := stream.CachedInfo().State
	var found []*v1.DeadLetter
	for seq := state.FirstSeq; seq <= state.LastSeq && state.Msgs > 0; seq++ {
		m := must(stream.GetMsg(w.ctx(), seq))
		d := new(v1.DeadLetter)
		Expect(proto.Unmarshal(m.Data, d)).To(Succeed())
		found = append(found, d)
	}
	return found
}

func itoa(n int) string { return strconv.Itoa(n) }
