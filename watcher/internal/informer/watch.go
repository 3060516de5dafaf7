package informer

import (
	"cmp"
	"context"
	"errors"
	"math"
	"net/url"
	"reflect"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/kv8s/curl-me-that/proto/service/kube"
)

// StallAfter is how long a watch may be silent. The API server sends a
// bookmark about once a minute; three missing ones mean that nothing comes
// through any more, in whatever state the connection is.
const StallAfter = 3 * time.Minute

const (
	// The back-off of the stock reflector grows to 30 s and more and leaves
	// it blind long after an outage is over; this one stays below 8 s.
	backoffFirst = 500 * time.Millisecond
	backoffMax   = 5 * time.Second
)

// Source is where a store is filled from.
type Source struct {
	// Client of the cluster.
	Client metadata.Interface
	// Selector is a label selector, applied by the API server.
	Selector string
	// StallAfter is how long a watch may be silent.
	StallAfter time.Duration
	// CompareEvery is how often the version of the API server is compared with
	// that of the watch; 0: never.
	CompareEvery time.Duration
	// Redial closes the connections of the client, so that what comes next
	// goes over new ones.
	Redial func()
	// Log gets one line for each change between watching and not watching.
	Log zerolog.Logger
}

// Watch fills the store from one namespace ("" for all) until ctx is done.
func (s *Informer) Watch(ctx context.Context, from Source, namespace string) {
	w := &namespaceWatch{Source: from, informer: s, namespace: namespace}
	for ctx.Err() == nil {
		w.untilStall(ctx)
	}
}

// watching is the watch of one namespace.
type namespaceWatch struct {
	Source
	informer  *Informer
	namespace string

	mu      sync.Mutex
	failing bool
}

// untilStall watches until ctx is done or the watch has fallen silent.
func (w *namespaceWatch) untilStall(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var monitor wait.Group
	defer monitor.Wait()
	defer cancel()
	monitor.StartWithContext(ctx, func(ctx context.Context) {
		w.informer.noteLife(w.namespace)
		wait.JitterUntilWithContext(ctx, func(context.Context) {
			if w.stalled() {
				cancel()
				w.Redial()
			}
		}, w.StallAfter/20, 0.1, true)
	})

	if w.CompareEvery > 0 {
		monitor.StartWithContext(ctx, func(ctx context.Context) {
			wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
				if w.broughtBack(ctx) {
					cancel()
					w.Redial()
				}
			}, w.CompareEvery, 0.1, true)
		})
	}

	log := logr.Discard()
	if w.Log.GetLevel() <= zerolog.DebugLevel {
		log = kube.Logr(w.Log) // it logs every try
	}
	cache.NewReflectorWithOptions(w.listWatch(), &metav1.PartialObjectMetadata{}, reflectorStore{w.informer, w.namespace}, cache.ReflectorOptions{
		Logger:          &log,
		Name:            "configmaps",
		TypeDescription: "ConfigMap metadata",
		Backoff: &wait.Backoff{
			Duration: backoffFirst, Cap: backoffMax, Factor: 2, Jitter: 0.5,
			Steps: int(math.Ceil(math.Log2(float64(backoffMax) / float64(backoffFirst)))),
		},
	}).RunWithContext(klog.NewContext(ctx, log))
}

// stalled reports whether nothing comes through a watch that is believed to work.
func (w *namespaceWatch) stalled() bool {
	w.mu.Lock()
	failing := w.failing
	w.mu.Unlock()
	last := w.informer.LastSeen(w.namespace)
	if failing || w.informer.reader.Now().Sub(last) <= w.StallAfter {
		return false
	}
	w.Log.Warn().Str("namespace", w.namespace).Time("since", last).Msg("the watch of ConfigMaps is silent, starting it anew")
	return true
}

// broughtBack reports whether the API server is at an earlier version than the
// watch: etcd was restored from a backup. A watch that goes on from a later
// version delivers nothing until that is reached again, and what it delivered
// may no longer be so. Only one object is asked for, of the present and not of
// a cache.
func (w *namespaceWatch) broughtBack(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, compareTimeout)
	defer cancel()
	latest := w.informer.versions[w.namespace].Load()
	list, err := w.resource().List(ctx, metav1.ListOptions{LabelSelector: w.Selector, Limit: 1})
	if err != nil { // the watch fails too, or will fall silent
		return false
	}
	now := number(list.ResourceVersion)
	if now == 0 || now >= latest {
		return false
	}
	w.Log.Warn().Str("namespace", w.namespace).Uint64("version", now).Uint64("seen", latest).
		Msg("the API server is at an earlier version than the watch, as after a restore; listing the ConfigMaps anew")
	return true
}

// compareTimeout bounds one comparison of versions.
const compareTimeout = 10 * time.Second

func (w *namespaceWatch) resource() metadata.ResourceInterface {
	return w.Client.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(w.namespace)
}

func (w *namespaceWatch) listWatch() *cache.ListWatch {
	resource := w.resource()
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = w.Selector
			list, err := resource.List(ctx, o)
			w.logTransition(ctx, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = w.Selector
			stream, err := resource.Watch(ctx, o)
			w.logTransition(ctx, cmp.Or(err, closed(stream)))
			return stream, err
		},
	}
}

// closed returns what the client passes over in silence: that the connection was
// closed before an answer came, at all of its tries.
func closed(stream watch.Interface) error {
	if reflect.TypeOf(stream) == reflect.TypeOf(watch.NewEmptyWatch()) {
		return errClosed
	}
	return nil
}

// logTransition logs a change of state. That a version is gone from the API server's
// history, or that it cannot stream a list, is none: the reflector lists then.
func (w *namespaceWatch) logTransition(ctx context.Context, err error) {
	if ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsInvalid(err) {
		return
	}
	if apierrors.IsForbidden(err) {
		w.informer.refuse(w.namespace)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err != nil && !w.failing:
		if request := new(url.Error); errors.As(err, &request) {
			err = request.Err // without the query
		}
		w.Log.Warn().Err(err).Str("namespace", w.namespace).Msg("the ConfigMaps cannot be watched, trying until they can")
	case err == nil && w.failing:
		w.Log.Info().Str("namespace", w.namespace).Msg("watching the ConfigMaps again")
	}
	w.failing = err != nil
}
