package informer

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/kv8s/curl-me-that/proto/kube"
)

// StallAfter is the default maximum silence of a watch: three missing bookmarks, which the API server
// sends about once a minute.
const StallAfter = 3 * time.Minute

const (
	// The default back-off of a reflector exceeds 30 s, so the cache would be outdated long after an
	// outage. This one stays below 8 s.
	backoffFirst = 500 * time.Millisecond
	backoffMax   = 5 * time.Second
	backoffSteps = 4
)

// Objects lists and watches objects of one kind.
type Objects struct {
	// Name is the kind in log lines, such as ConfigMaps.
	Name string
	Type runtime.Object
	// List and Watch return the objects of one namespace ("": all).
	List  func(ctx context.Context, namespace string, o metav1.ListOptions) (runtime.Object, error)
	Watch func(ctx context.Context, namespace string, o metav1.ListOptions) (watch.Interface, error)
}

// Client lists and watches objects of one namespace.
type Client[L runtime.Object] interface {
	List(ctx context.Context, o metav1.ListOptions) (L, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// ObjectsOf returns the Objects of a client.
func ObjectsOf[C Client[L], L runtime.Object](name string, kind runtime.Object, in func(namespace string) C) Objects {
	return Objects{
		Name: name, Type: kind,
		List: func(ctx context.Context, namespace string, o metav1.ListOptions) (runtime.Object, error) {
			return in(namespace).List(ctx, o)
		},
		Watch: func(ctx context.Context, namespace string, o metav1.ListOptions) (watch.Interface, error) {
			return in(namespace).Watch(ctx, o)
		},
	}
}

// ConfigMaps returns the metadata of ConfigMaps.
func ConfigMaps(client metadata.Interface) Objects {
	return ObjectsOf("ConfigMaps", &metav1.PartialObjectMetadata{},
		client.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace)
}

// Source has the settings of a watch.
type Source struct {
	Objects Objects
	// Selector is a label selector, applied by the API server.
	Selector string
	// StallAfter is the maximum silence of a watch.
	StallAfter time.Duration
	// CompareEvery is the interval between comparisons of the API server's version with the watch;
	// 0: never.
	CompareEvery time.Duration
	// Redial closes the connections of the client, so that the next request opens a new one.
	Redial func()
	// Log gets one line when the watch fails and one when it works again.
	Log zerolog.Logger
}

// Watch fills the informer until ctx is done.
func (i *Informer[T]) Watch(ctx context.Context, from Source) {
	var namespaces sync.WaitGroup
	for _, n := range i.namespaces {
		w := &namespaceWatch[T]{namespace: n, from: from}
		namespaces.Go(func() {
			for ctx.Err() == nil {
				w.untilStall(ctx)
			}
		})
	}
	namespaces.Wait()
}

// namespaceWatch is the watch of one namespace, or of all.
type namespaceWatch[T Cached] struct {
	*namespace[T]

	from    Source
	failing atomic.Bool
	// plain means that lists are no longer requested as streams, because one did not end.
	plain atomic.Bool
}

// untilStall watches until ctx is done or the watch must be restarted.
func (n *namespaceWatch[T]) untilStall(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var monitors sync.WaitGroup
	defer monitors.Wait()
	defer cancel()
	endIf := func(useless func(context.Context) bool, every time.Duration) {
		monitors.Go(func() {
			wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
				if useless(ctx) {
					cancel()
					n.from.Redial()
				}
			}, every, 0.1, true)
		})
	}
	n.recordResponse()
	n.recordListing(false)
	endIf(n.stalled, n.from.StallAfter/20)
	if n.from.CompareEvery > 0 {
		endIf(n.restored, n.from.CompareEvery)
	}

	log := kube.DebugLogr(n.from.Log)
	cache.NewReflectorWithOptions(n.listWatch(), n.from.Objects.Type, n.namespace, cache.ReflectorOptions{
		Logger:          &log,
		Name:            strings.ToLower(n.from.Objects.Name),
		TypeDescription: n.from.Objects.Name,
		Backoff:         &wait.Backoff{Duration: backoffFirst, Cap: backoffMax, Factor: 2, Jitter: 0.5, Steps: backoffSteps},
	}).RunWithContext(klog.NewContext(ctx, log))
}

// stalled reports whether a watch without errors is silent, or begins with a list that does not end. A proxy that does
// not know streaming lists sends all objects, but not the bookmark for which the reflector waits without limit.
func (n *namespaceWatch[T]) stalled(context.Context) bool {
	switch {
	case n.failing.Load():
		return false
	case n.listingFor() > n.from.StallAfter:
		n.plain.Store(true)
		n.from.Log.Warn().Str("namespace", n.name).Msg("the list of " + n.from.Objects.Name +
			" as a stream does not end, requesting it as a whole from now on")
	case n.silence() > n.from.StallAfter:
		n.from.Log.Warn().Str("namespace", n.name).Time("since", time.Unix(0, n.seen.Load())).Msg("the watch of " +
			n.from.Objects.Name + " is silent, restarting it")
	default:
		return false
	}
	return true
}

// restored reports whether the API server is at an earlier version than the watch: etcd was restored from
// a backup. Such a watch delivers nothing until etcd reaches the old version again. The comparison lists
// one object, and bypasses the API server's cache.
func (n *namespaceWatch[T]) restored(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, compareTimeout)
	defer cancel()
	latest := n.latest.Load()
	list, err := n.from.Objects.List(ctx, n.name, metav1.ListOptions{LabelSelector: n.from.Selector, Limit: 1})
	if err != nil { // the watch fails too, or will fall silent
		return false
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return false
	}
	now := kube.ParseVersion(accessor.GetResourceVersion())
	if now == 0 || now >= latest {
		return false
	}
	n.from.Log.Warn().Str("namespace", n.name).Uint64("version", now).Uint64("seen", latest).
		Msg("the API server is at an earlier version than the watch, as after a restore: listing the " +
			n.from.Objects.Name + " again")
	return true
}

// compareTimeout is the timeout of one comparison.
const compareTimeout = 10 * time.Second

func (n *namespaceWatch[T]) listWatch() *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = n.from.Selector
			list, err := n.from.Objects.List(ctx, n.name, o)
			n.logTransition(ctx, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = n.from.Selector
			list := o.SendInitialEvents != nil
			if list && n.plain.Load() {
				return nil, errPlain
			}
			stream, err := n.from.Objects.Watch(ctx, n.name, o)
			n.recordListing(list && err == nil)
			n.logTransition(ctx, cmp.Or(err, closed(stream)))
			return stream, err
		},
	}
}

// closed returns an error that client-go hides by an empty watch: the connection was closed.
func closed(stream watch.Interface) error {
	if reflect.TypeOf(stream) == reflect.TypeOf(watch.NewEmptyWatch()) {
		return errClosed
	}
	return nil
}

// logTransition logs when the watch starts to fail and when it works again. An expired version, or a
// server without streaming lists, is not a failure, because the reflector falls back to a list.
func (n *namespaceWatch[T]) logTransition(ctx context.Context, err error) {
	if ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsInvalid(err) {
		return
	}
	if apierrors.IsForbidden(err) {
		n.forbid()
	}
	switch failed := n.failing.Swap(err != nil); {
	case err != nil && !failed:
		if request := new(url.Error); errors.As(err, &request) {
			err = request.Err // without the query
		}
		n.from.Log.Warn().Err(err).Str("namespace", n.name).Msg("the " + n.from.Objects.Name +
			" cannot be watched, retrying")
	case err == nil && failed:
		n.from.Log.Info().Str("namespace", n.name).Msg("watching the " + n.from.Objects.Name + " again")
	}
}

// errPlain makes the reflector request a list as a whole.
var errPlain = errors.New("no list as a stream")

// errClosed means that the API server, or a proxy, closes connections before a response.
var errClosed = errors.New("connection closed before a response")
