package apply_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/process/kube"
	"github.com/kv8s/curl-me-that/proto/process/metric"
	"github.com/kv8s/curl-me-that/proto/process/metric/metrictest"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

// crowd is an API server that accepts every patch, except that every tenth object does not exist.
type crowd struct{}

func (crowd) RoundTrip(r *http.Request) (*http.Response, error) {
	name := path.Base(r.URL.Path)
	code, body := http.StatusOK, fmt.Sprintf(`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",
		"metadata":{"name":%q,"namespace":"ns","uid":"uid-of-%s","resourceVersion":"2"}}`, name, name)
	if strings.HasSuffix(name, "0") {
		code, body = http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound",`+
			`"code":404}`
	}
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(body)), Request: r,
	}, nil
}

func TestTenThousandObjectsMakeNoSeriesMore(t *testing.T) {
	const objects, hosts = 10_000, 500
	registry := prometheus.NewRegistry()
	own, standard := metric.New(registry, "writer"), metric.Standard(registry)
	calls := kube.NewCalls(standard, "GET", "PATCH", "POST")
	applier, signer := newApplier(t, calls.Of(&rest.Config{Host: "http://model", Transport: crowd{}, QPS: -1}), own)
	handle := func(i int) {
		name := fmt.Sprint("cm-", i)
		want := &v1.Want{
			Namespace: "ns", Name: name, Key: "k", Uid: "uid-of-" + name, ResourceVersion: "1", Epoch: 1,
			Url: fmt.Sprintf("https://host-%d.example.com/%d", i%hosts, i),
		}
		signer.Sign(want)
		applier.Apply(t.Context(), types.NamespacedName{Namespace: "ns", Name: name}, []plan.Item{plan.NewItem(&v1.Result{
			Want: want, Sequence: 1, ObservedAt: timestamppb.Now(),
			Outcome: &v1.Result_Content{Content: &v1.Content{Body: []byte("x"), Sha256: strings.Repeat("0", 64)}},
		})})
	}
	handle(1)
	handle(10)
	before, err := metrictest.Read(registry)
	must(t, err)
	for i := range objects {
		handle(i)
	}
	after, err := metrictest.Read(registry)
	must(t, err)
	if handled := after["curlmethat_writer_apply_duration_seconds"]; handled != objects+2 {
		t.Fatalf("%v batches were applied", handled)
	}
	if a, b := slices.Sorted(maps.Keys(after)), slices.Sorted(maps.Keys(before)); !slices.Equal(a, b) {
		t.Fatalf("series before:\n%s\nafter:\n%s", strings.Join(b, "\n"), strings.Join(a, "\n"))
	}
}
