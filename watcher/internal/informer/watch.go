package informer

import (
	"cmp"
	"context"
	"errors"
	"math"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// Objects are what a source delivers, of one kind.
type Objects struct {
	// Name of the kind in log lines, such as ConfigMaps.
	Name string
	// Type that is delivered.
	Type runtime.Object
	// List and Watch those of one namespace ("" for all).
	List  func(ctx context.Context, namespace string, o metav1.ListOptions) (runtime.Object, error)
	Watch func(ctx context.Context, namespace string, o metav1.ListOptions) (watch.Interface, error)
}

// metadataOf returns objects of which only the metadata is delivered.
func metadataOf(client metadata.Interface, resource schema.GroupVersionResource, name string) Objects {
	return Objects{
		Name: name, Type: &metav1.PartialObjectMetadata{},
		List: func(ctx context.Context, namespace string, o metav1.ListOptions) (runtime.Object, error) {
			return client.Resource(resource).Namespace(namespace).List(ctx, o)
		},
		Watch: func(ctx context.Context, namespace string, o metav1.ListOptions) (watch.Interface, error) {
			return client.Resource(resource).Namespace(namespace).Watch(ctx, o)
		},
	}
}

// ConfigMaps returns the metadata of ConfigMaps.
func ConfigMaps(client metadata.Interface) Objects {
	return metadataOf(client, corev1.SchemeGroupVersion.WithResource("configmaps"), "ConfigMaps")
}

// Source is where a store is filled from.
type Source struct {
	// Objects are what it delivers.
	Objects Objects
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

// Store is what a watch fills. It notes signs of life in the Pulse of the watch.
type Store interface {
	cache.ReflectorStore
	cache.ReflectorBookmarkStore
	cache.TransformingStore
}

// Watched is one namespace ("" for all) that is watched, and where what the watch
// delivers goes.
type Watched struct {
	Namespace string
	Store     Store
	Pulse     *Pulse
	// Refused is called when the namespace may not be read.
	Refused func()
}

// Watch fills the informer from one namespace ("" for all) until ctx is done.
func (s *Informer) Watch(ctx context.Context, from Source, namespace string) {
	from.Watch(ctx, Watched{
		Namespace: namespace, Store: reflectorStore{s, namespace}, Pulse: s.pulses[namespace],
		Refused: func() { s.refuse(namespace) },
	})
}

// Watch fills a store until ctx is done.
func (from Source) Watch(ctx context.Context, watched Watched) {
	w := &namespaceWatch{Source: from, watched: watched}
	for ctx.Err() == nil {
		w.untilStall(ctx)
	}
}

// namespaceWatch is the watch of one namespace.
type namespaceWatch struct {
	Source
	watched Watched

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
		w.watched.Pulse.Beat()
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
	cache.NewReflectorWithOptions(w.listWatch(), w.Objects.Type, w.watched.Store, cache.ReflectorOptions{
		Logger:          &log,
		Name:            strings.ToLower(w.Objects.Name),
		TypeDescription: w.Objects.Name,
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
	if failing || w.watched.Pulse.Silence() <= w.StallAfter {
		return false
	}
	w.Log.Warn().Str("namespace", w.watched.Namespace).Time("since", w.watched.Pulse.last()).Msg("the watch of " + w.Objects.Name + " is silent, starting it anew")
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
	latest := w.watched.Pulse.Version()
	list, err := w.Objects.List(ctx, w.watched.Namespace, metav1.ListOptions{LabelSelector: w.Selector, Limit: 1})
	if err != nil { // the watch fails too, or will fall silent
		return false
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return false
	}
	now := Number(accessor.GetResourceVersion())
	if now == 0 || now >= latest {
		return false
	}
	w.Log.Warn().Str("namespace", w.watched.Namespace).Uint64("version", now).Uint64("seen", latest).
		Msg("the API server is at an earlier version than the watch, as after a restore; listing the " + w.Objects.Name + " anew")
	return true
}

// compareTimeout bounds one comparison of versions.
const compareTimeout = 10 * time.Second

func (w *namespaceWatch) listWatch() *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = w.Selector
			list, err := w.Objects.List(ctx, w.watched.Namespace, o)
			w.logTransition(ctx, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = w.Selector
			stream, err := w.Objects.Watch(ctx, w.watched.Namespace, o)
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
		w.watched.Refused()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err != nil && !w.failing:
		if request := new(url.Error); errors.As(err, &request) {
			err = request.Err // without the query
		}
		w.Log.Warn().Err(err).Str("namespace", w.watched.Namespace).Msg("the " + w.Objects.Name + " cannot be watched, trying until they can")
	case err == nil && w.failing:
		w.Log.Info().Str("namespace", w.watched.Namespace).Msg("watching the " + w.Objects.Name + " again")
	}
	w.failing = err != nil
}
