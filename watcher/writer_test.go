package watcher_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
)

// answer waits for the want of a key and acts like the writer: one patch with value and status.
func (w *world) answer(ctx context.Context, key pipeline.Key, body string) {
	GinkgoHelper()
	Eventually(w.want(ctx, key)).ShouldNot(BeNil())
	w.report(ctx, key, func(e *status.Entry) {
		e.SHA256 = digest(body)
		e.Size = int64(len(body))
		e.Error, e.Drift = "", ""
	}, object{"data": object{key.Key: body}})
}

// report writes the status of a key for its current want, together with a patch.
func (w *world) report(ctx context.Context, key pipeline.Key, change func(*status.Entry), patch object) {
	GinkgoHelper()
	want, seq, err := w.pipeline.LastWant(ctx, key)
	Expect(err).NotTo(HaveOccurred())
	cm := must(kube.CoreV1().ConfigMaps(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{}))
	s := must(status.Parse(cm.Annotations[annotation.StatusKey]))
	entry := s.Keys[key.Key]
	entry.URL, entry.FetchedAt = want.GetUrl(), time.Now()
	entry.Fence = status.Fence{Epoch: want.GetEpoch(), Seq: seq}
	change(&entry)
	s.Keys[key.Key] = entry
	patch["metadata"] = object{"annotations": object{annotation.StatusKey: s.String()}}
	w.patch(ctx, annotation.FieldManager, key.Name, patch)
}

func digest(body string) string {
	sum := sha256.Sum256([]byte(body))
	return hex.EncodeToString(sum[:])
}

// satisfied creates a ConfigMap with one written key.
func (w *world) satisfied(ctx context.Context, name, url string) pipeline.Key {
	GinkgoHelper()
	key := w.key(name, "k")
	w.create(ctx, name, "k="+url)
	w.answer(ctx, key, "body of "+url)
	return key
}
