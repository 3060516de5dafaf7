package observe

import (
	"context"
	"math"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

const (
	// stallAfter is how long a watch may be silent. The API server sends a
	// bookmark about once a minute; three missing ones mean that nothing
	// comes through any more, whatever the connection says.
	stallAfter = 3 * time.Minute
	// The back-off of the stock reflector grows to 30 s and more and leaves
	// it blind long after an outage is over; this one stays below 8 s.
	backoffFirst = 500 * time.Millisecond
	backoffMax   = 5 * time.Second
)

// Watch fills the store from one namespace ("" for all) until ctx is done.
// selector is a label selector, applied by the API server.
func (s *Store) Watch(ctx context.Context, client metadata.Interface, namespace, selector string, log logr.Logger) {
	for ctx.Err() == nil {
		s.watchUntilStall(ctx, client, namespace, selector, log)
	}
}

func (s *Store) watchUntilStall(ctx context.Context, client metadata.Interface, namespace, selector string, log logr.Logger) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	started := s.reader.Now()
	go wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
		last := s.LastSeen(namespace)
		if last.Before(started) {
			last = started
		}
		if s.reader.Now().Sub(last) > stallAfter {
			log.Info("the watch is silent, starting it anew", "namespace", namespace, "since", last)
			cancel()
		}
	}, 10*time.Second, 0.1, true)

	resource := client.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(namespace)
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = selector
			return resource.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = selector
			return resource.Watch(ctx, o)
		},
	}
	ctx = klog.NewContext(ctx, log)
	cache.NewReflectorWithOptions(source, &metav1.PartialObjectMetadata{}, scope{s, namespace}, cache.ReflectorOptions{
		Logger:          &log,
		Name:            "configmaps",
		TypeDescription: "ConfigMap metadata",
		Backoff: &wait.Backoff{
			Duration: backoffFirst, Cap: backoffMax, Factor: 2, Jitter: 0.5,
			Steps: int(math.Ceil(math.Log2(float64(backoffMax) / float64(backoffFirst)))),
		},
	}).RunWithContext(ctx)
}
