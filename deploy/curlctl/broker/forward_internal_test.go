package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"      //nolint:staticcheck // client-go still uses it
	"k8s.io/apimachinery/pkg/util/httpstream/spdy" //nolint:staticcheck // likewise

	"github.com/kv8s/curl-me-that/proto/kube"
)

// A NATS server that accepts a connection and says nothing, or a port that nobody listens on.
func TestAPortForwardToASilentServerEnds(t *testing.T) {
	for title, c := range map[string]struct{ refusal, want string }{
		"a server that says nothing": {"", "timeout"},
		"a closed port":              {"nothing listens on port 4222", "nothing listens on port 4222"},
	} {
		t.Run(title, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				_, _, err := new(Options).forward(ctx, withNATS(t, c.refusal), new(Denials))
				ended <- err
			}()
			select {
			case err := <-ended:
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v", err)
				}
			case <-time.After(10 * time.Second):
				t.Error("it still waits")
			}
		})
	}
}

func TestAnErrorOfKubernetesIsNoWrongAddress(t *testing.T) {
	unreachable := &url.Error{Op: "Get", URL: "https://127.0.0.1:1", Err: io.EOF}
	if got := plain(fmt.Errorf("there is no port-forward: %w", unreachable)); !errors.Is(got, io.EOF) {
		t.Errorf("got %v", got)
	}
}

// withNATS is an API server with a pod of NATS, to which it forwards a port: it says nothing, or refuses.
func withNATS(t *testing.T, refusal string) kube.Options {
	t.Helper()
	mux := http.NewServeMux()
	reply := func(object any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(object)
		}
	}
	mux.HandleFunc("GET /api/v1/services", reply(corev1.ServiceList{Items: []corev1.Service{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "nats"},
		Spec:       corev1.ServiceSpec{ClusterIP: "10.0.0.1", Ports: []corev1.ServicePort{{Port: 4222}}},
	}}}))
	mux.HandleFunc("GET /api/v1/namespaces/a/pods", reply(corev1.PodList{Items: []corev1.Pod{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "nats-0"},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue},
		}},
	}}}))
	mux.HandleFunc("POST /api/v1/namespaces/a/pods/nats-0/portforward", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(httpstream.HeaderProtocolVersion, portForward)
		conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(stream httpstream.Stream, _ <-chan struct{}) error {
			if refusal != "" && stream.Headers().Get(corev1.StreamType) == corev1.StreamTypeError {
				go func() {
					_, _ = io.WriteString(stream, refusal)
					_ = stream.Close()
				}()
			}
			return nil
		})
		<-conn.CloseChan()
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"kind": "Config", "apiVersion": "v1", "current-context": "a",
		"clusters": [{"name": "a", "cluster": {"server": %q}}],
		"contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
		"users": [{"name": "a", "user": {}}]}`, server.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return kube.Options{Kubeconfig: file}
}
