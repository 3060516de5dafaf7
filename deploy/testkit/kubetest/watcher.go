package kubetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// Watchers installs the CRD of Watchers and returns a client for them. Other suites may do the same at any time, so
// none removes the CRD.
func Watchers(ctx context.Context, tb testing.TB, config *rest.Config) *watchv1.Client {
	tb.Helper()
	web, err := rest.HTTPClientFor(config)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { utilnet.CloseIdleConnectionsFor(web.Transport) })
	core, err := kubernetes.NewForConfigAndClient(config, web)
	if err != nil {
		tb.Fatal(err)
	}
	watchers, err := watchv1.NewClient(config, web)
	if err != nil {
		tb.Fatal(err)
	}
	definition := watchv1.Resource().GroupResource().String()
	if err := core.RESTClient().Patch(types.ApplyPatchType).
		AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).
		Param("fieldManager", "spec").Param("force", "true").Body(watchv1.Definition).Do(ctx).Error(); err != nil {
		tb.Fatal(err)
	}
	var unserved error
	if wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, unserved = watchers.In("").List(ctx, metav1.ListOptions{Limit: 1})
		return unserved == nil, nil
	}) != nil {
		tb.Fatal(unserved)
	}
	return watchers
}

// ApplyWatcher creates or updates a Watcher like kubectl apply. spec is the content of a YAML flow mapping.
func ApplyWatcher(ctx context.Context, in *watchv1.Namespaced, name, spec string) (*watchv1.Watcher, error) {
	return in.Patch(ctx, name, types.ApplyPatchType,
		fmt.Appendf(nil, "{apiVersion: %s, kind: %s, metadata: {name: %s}, spec: {%s}}", watchv1.GroupVersion(), watchv1.Kind,
			name, spec), metav1.PatchOptions{FieldManager: "kubectl", Force: new(true)})
}
