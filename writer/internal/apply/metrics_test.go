package apply_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/service/kube"
	"github.com/kv8s/curl-me-that/proto/service/metric"
	"github.com/kv8s/curl-me-that/proto/service/metric/metrictest"
	"github.com/kv8s/curl-me-that/writer/internal/apply"
	"github.com/kv8s/curl-me-that/writer/internal/judge"
)

// crowd is an API server that takes every patch, of whatever object, but for
// each tenth object, which it does not know.
type crowd struct{}

func (crowd) RoundTrip(r *http.Request) (*http.Response, error) {
	name := path.Base(r.URL.Path)
	code, body := http.StatusOK, fmt.Sprintf(`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",
		"metadata":{"name":%q,"namespace":"ns","uid":"uid-of-%s","resourceVersion":"2"}}`, name, name)
	if strings.HasSuffix(name, "0") {
		code, body = http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`
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
	client, err := apply.NewClient(calls.Of(&rest.Config{Host: "http://model", Transport: crowd{}, QPS: -1}))
	must(t, err)
	grammar, err := annotation.New(annotation.Defaults())
	must(t, err)
	applier, err := apply.New(apply.Options{
		Client: client, Recorder: kube.NewRecorder(client.Events(), "writer", time.Now),
		View: judge.Viewer{Grammar: grammar, Selector: labels.Everything()}, Judge: judge.Judge{Prune: true},
		Gate:    apply.NewGate(func(context.Context) error { return nil }, clock.RealClock{}, zerolog.Nop(), nil),
		Metrics: apply.NewMetrics(own), Log: zerolog.Nop(), Clock: clock.RealClock{},
	})
	must(t, err)
	settle := func(i int) {
		name := fmt.Sprint("cm-", i)
		applier.Apply(t.Context(), apply.Ref{Namespace: "ns", Name: name}, []judge.Item{judge.NewItem(&v1.Result{
			Want: &v1.Want{
				Namespace: "ns", Name: name, Key: "k", Uid: "uid-of-" + name, ResourceVersion: "1", Epoch: 1,
				Url: fmt.Sprintf("https://host-%d.example.com/%d", i%hosts, i),
			},
			Sequence: 1, ObservedAt: timestamppb.Now(),
			Outcome: &v1.Result_Content{Content: &v1.Content{Body: []byte("x"), Sha256: strings.Repeat("0", 64)}},
		})})
	}
	settle(1)
	settle(10)
	before, err := metrictest.Read(registry)
	must(t, err)
	for i := range objects {
		settle(i)
	}
	after, err := metrictest.Read(registry)
	must(t, err)
	if settled := after["curlmethat_writer_apply_duration_seconds"]; settled != objects+2 {
		t.Fatalf("%v batches were applied", settled)
	}
	if a, b := slices.Sorted(maps.Keys(after)), slices.Sorted(maps.Keys(before)); !slices.Equal(a, b) {
		t.Fatalf("series before:\n%s\nafter:\n%s", strings.Join(b, "\n"), strings.Join(a, "\n"))
	}
}
