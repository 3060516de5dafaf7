package cluster

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

func TestCallOf(t *testing.T) {
	for name, test := range map[string]struct {
		method, url string
		want        Call
		counts      bool
	}{
		"get":             {http.MethodGet, "/api/v1/namespaces/ns/configmaps/cm", Call{"configmaps", "GET", "200"}, true},
		"list":            {http.MethodGet, "/api/v1/namespaces/ns/configmaps?limit=10", Call{"configmaps", "LIST", "200"}, true},
		"patch":           {http.MethodPatch, "/api/v1/namespaces/ns/configmaps/cm", Call{"configmaps", "PATCH", "200"}, true},
		"event":           {http.MethodPost, "/apis/events.k8s.io/v1/namespaces/ns/events", Call{"events", "POST", "200"}, true},
		"watch":           {http.MethodGet, "/api/v1/namespaces/ns/configmaps?watch=true", Call{}, false},
		"namespace":       {http.MethodDelete, "/api/v1/namespaces/configmaps", Call{}, false},
		"other resource":  {http.MethodGet, "/api/v1/namespaces/ns/secrets/configmaps", Call{}, false},
		"nothing of ours": {http.MethodGet, "/metrics", Call{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, counts := callOf(httptest.NewRequest(test.method, test.url, http.NoBody), http.StatusOK)
			if got != test.want || counts != test.counts {
				t.Errorf("got %+v, %t, want %+v, %t", got, counts, test.want, test.counts)
			}
		})
	}
}

// What the API server shows, in part.
const metricsBefore = `# TYPE apiserver_request_duration_seconds histogram
apiserver_request_duration_seconds_count{resource="configmaps",verb="PATCH"} 99
# TYPE apiserver_request_total counter
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="configmaps",scope="resource",subresource="",verb="PATCH",version="v1"} 10
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="secrets",scope="resource",subresource="",verb="PATCH",version="v1"} 5
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total 1.5
`

const metricsAfter = `# TYPE apiserver_request_total counter
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="configmaps",scope="resource",subresource="",verb="PATCH",version="v1"} 30
apiserver_request_total{code="409",component="apiserver",dry_run="",group="",resource="configmaps",scope="resource",subresource="",verb="PATCH",version="v1"} 1
apiserver_request_total{code="201",component="apiserver",dry_run="",group="events.k8s.io",resource="events",scope="resource",subresource="",verb="POST",version="v1"} 2
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total 3.25
`

func TestMeter(t *testing.T) {
	patch := Call{"configmaps", "PATCH", "200"}
	before, err := parse([]byte(metricsBefore), map[Call]int{patch: 4})
	if err != nil {
		t.Fatal(err)
	}
	after, err := parse([]byte(metricsAfter), map[Call]int{patch: 9})
	if err != nil {
		t.Fatal(err)
	}
	got := after.Since(before)
	want := map[Call]int{patch: 15, {"configmaps", "PATCH", "409"}: 1, {"events", "POST", "201"}: 2}
	if len(got.Calls) != len(want) || got.CPU != 1750*time.Millisecond {
		t.Errorf("got %+v, want %+v in 1.75s", got, want)
	}
	for call, count := range want {
		if got.Calls[call] != count {
			t.Errorf("%+v: got %d, want %d", call, got.Calls[call], count)
		}
	}
	if _, err := parse([]byte("process_cpu_seconds_total much\n"), nil); err == nil {
		t.Error("no error for a metric that is no number")
	}
}
