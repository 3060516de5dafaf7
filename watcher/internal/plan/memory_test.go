package plan_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

// maxKeyBytes is the maximum memory of a key that is alone in its object.
const maxKeyBytes = 1300

func TestAKeyTakesLittleMemory(t *testing.T) {
	const objects = 20_000
	grammar, err := annotation.New(annotation.Defaults())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	reader := &annotated.Reader{Grammar: grammar, Now: time.Now}
	heap := func() uint64 {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	before := heap()
	seen := map[types.NamespacedName]*annotated.Object{}
	index := wantindex.NewIndex()
	for n := range objects {
		m := storedObject(n)
		o := reader.Read(m)
		seen[o.NamespacedName] = o
		p := &v1.Want{
			Namespace: o.Namespace, Name: o.Name, Key: "mydata", Uid: string(o.UID), Url: o.Request.Pairs[0].URL,
			ResourceVersion: fmt.Sprint(o.Version), Epoch: epoch,
		}
		index.Put(pipeline.KeyOf(p), wantindex.FromWant(p, epoch, uint64(n), time.Now()))
	}
	each := (heap() - before) / objects
	t.Logf("%d bytes a key", each)
	NewWithT(t).Expect(each).To(BeNumerically("<=", maxKeyBytes), "bytes a key")
	runtime.KeepAlive(seen)
	runtime.KeepAlive(index)
}

// storedObject returns the metadata of a ConfigMap with one written key.
func storedObject(n int) *metav1.PartialObjectMetadata {
	url := fmt.Sprintf("https://data.example.com/configuration/%d.json", n)
	s := status.Status{Keys: map[string]status.Entry{"mydata": {
		URL: url, SHA256: sum, Size: 1000, ChangedAt: time.Now(),
		UIDMark: "12345678", Fence: status.Fence{Epoch: epoch, Seq: uint64(n)},
	}}}
	fields := metav1.NewFieldsV1(
		`{"f:data":{"f:mydata":{}},"f:metadata":{"f:annotations":{"f:x-kv8s.io/curl-status":{}}}}`)
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: fmt.Sprint("namespace-", n%20), Name: fmt.Sprint("configmap-", n),
		UID: types.UID(fmt.Sprintf("12345678-1234-1234-1234-%012d", n)), ResourceVersion: fmt.Sprint(n),
		Annotations: map[string]string{
			annotation.DefaultKey: "mydata=" + url, "x-kv8s.io/" + annotation.RefreshName: "10m",
			annotation.StatusKey: s.String(),
		},
		ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: annotation.FieldManager, Operation: metav1.ManagedFieldsOperationUpdate, FieldsType: "FieldsV1",
			Time: &metav1.Time{Time: time.Now()}, FieldsV1: fields,
		}},
	}}
}
