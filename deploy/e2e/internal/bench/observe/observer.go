// Package observe sees the benchmark's ConfigMaps being filled, through one
// watch of their metadata.
package observe

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"
)

// errEnded means that the watch came to an end.
var errEnded = errors.New("the watch of the ConfigMaps ended")

// buffer lets the time of an arrival be taken while an earlier one is looked at.
const buffer = 4096

// Arrival is a change that the watch delivered.
type Arrival struct {
	// Object is the metadata after the change.
	Object *metav1.PartialObjectMetadata
	// At is when it was there.
	At time.Time
}

// Observer is one watch of a namespace.
type Observer struct {
	arrivals chan Arrival
	failure  error
}

// Start watches the ConfigMaps of a namespace from a resource version on, until
// ctx is done.
func Start(ctx context.Context, client metadata.Interface, namespace, version string) (*Observer, error) {
	resource := client.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(namespace)
	watcher, err := toolswatch.NewRetryWatcherWithContext(ctx, version, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return resource.Watch(ctx, o)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watch the ConfigMaps of %s: %w", namespace, err)
	}
	o := &Observer{arrivals: make(chan Arrival, buffer)}
	go o.receive(ctx, watcher.ResultChan())
	return o, nil
}

// receive is the only one to send; failure is set before arrivals is closed.
func (o *Observer) receive(ctx context.Context, events <-chan watch.Event) {
	defer close(o.arrivals)
	for event := range events {
		at := time.Now()
		switch object := event.Object.(type) {
		case *metav1.PartialObjectMetadata:
			if event.Type != watch.Added && event.Type != watch.Modified {
				continue
			}
			select {
			case o.arrivals <- Arrival{Object: object, At: at}:
			case <-ctx.Done():
			}
		case *metav1.Status:
			o.failure = fmt.Errorf("%w: %s", errEnded, object.Message)
			return
		}
	}
	o.failure = errEnded
}

// Next waits a while for the next arrival, and reports whether there was one. An
// error means that there will be none.
func (o *Observer) Next(ctx context.Context, within time.Duration) (a Arrival, there bool, err error) {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case a, there = <-o.arrivals:
		if !there {
			return a, false, o.failure
		}
		return a, true, nil
	case <-timer.C:
		return a, false, nil
	case <-ctx.Done():
		return a, false, context.Cause(ctx)
	}
}
