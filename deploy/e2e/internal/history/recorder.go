package history

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// rootCA is put into every namespace of a real cluster, by its controller
// manager.
const rootCA = "kube-root-ca.crt"

// Recorder watches the ConfigMaps of one namespace.
type Recorder struct {
	client typed.ConfigMapInterface
	stop   context.CancelFunc
	ended  chan struct{}

	mu     sync.Mutex
	lives  map[types.UID]*life
	order  []types.UID
	newest map[string]types.UID // by name
	bySpec map[string]struct{}  // uid/resourceVersion, and uid alone of what was deleted
	err    error
}

type life struct {
	name     string
	versions []Version
}

// Follow begins to record; Stop must be called. The watch finds back to an API
// server that was away, without missing a version.
func Follow(ctx context.Context, client typed.ConfigMapInterface) (*Recorder, error) {
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list ConfigMaps: %w", err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	watcher, err := watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.Watch(ctx, o)
		},
	})
	if err != nil {
		stop()
		return nil, fmt.Errorf("watch ConfigMaps: %w", err)
	}
	r := &Recorder{client: client, stop: stop, ended: make(chan struct{}), lives: map[types.UID]*life{}, newest: map[string]types.UID{}, bySpec: map[string]struct{}{}}
	go func() {
		defer close(r.ended)
		defer watcher.Stop()
		r.record(ctx, watcher)
	}()
	return r, nil
}

func (r *Recorder) record(ctx context.Context, watcher watch.Interface) {
	for {
		select {
		case <-ctx.Done():
			return
		case event, open := <-watcher.ResultChan():
			if !open {
				r.fail(ctx, errors.New("watch of ConfigMaps ended"))
				return
			}
			switch object := event.Object.(type) {
			case *corev1.ConfigMap:
				r.add(event.Type, object)
			case *metav1.Status:
				r.fail(ctx, fmt.Errorf("watch ConfigMaps: %w", apierrors.FromObject(object)))
			}
		}
	}
}

func (r *Recorder) fail(ctx context.Context, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() == nil && r.err == nil {
		r.err = err
	}
}

func (r *Recorder) add(kind watch.EventType, object *corev1.ConfigMap) {
	if object.Name == rootCA || kind == watch.Bookmark {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lives[object.UID]
	if l == nil {
		l = &life{name: object.Name}
		r.lives[object.UID] = l
		r.order = append(r.order, object.UID)
		r.newest[object.Name] = object.UID
	}
	l.versions = append(l.versions, Version{Object: object, Deleted: kind == watch.Deleted})
}

// Stop ends the recording.
func (r *Recorder) Stop() {
	r.stop()
	<-r.ended
}

// BySpec tells that a test has just written this version.
func (r *Recorder) BySpec(object metav1.Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bySpec[string(object.GetUID())+"/"+object.GetResourceVersion()] = struct{}{}
}

// Seen tells whether a version has been recorded.
func (r *Recorder) Seen(object metav1.Object) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lives[object.GetUID()]
	return l != nil && slices.ContainsFunc(l.versions, func(v Version) bool {
		return v.Object.ResourceVersion == object.GetResourceVersion()
	})
}

// DeletedBySpec tells that a test is about to delete an object.
func (r *Recorder) DeletedBySpec(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bySpec[string(uid)] = struct{}{}
}

// Lives returns all that was recorded, in the order of creation.
func (r *Recorder) Lives() []Life {
	r.mu.Lock()
	defer r.mu.Unlock()
	lives := make([]Life, 0, len(r.order))
	for _, uid := range r.order {
		lives = append(lives, r.life(uid))
	}
	return lives
}

// life returns a copy with what is known of who wrote; the caller holds the
// lock.
func (r *Recorder) life(uid types.UID) Life {
	l := r.lives[uid]
	versions := slices.Clone(l.versions)
	for i, v := range versions {
		id := string(uid)
		if !v.Deleted {
			id += "/" + v.Object.ResourceVersion
		}
		_, versions[i].BySpec = r.bySpec[id]
	}
	return Life{UID: uid, Name: l.name, Versions: versions}
}

// Latest returns the newest recorded version of the ConfigMap of that name, or
// nil when there is none now.
func (r *Recorder) Latest(name string) *corev1.ConfigMap {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lives[r.newest[name]]
	if l == nil || l.versions[len(l.versions)-1].Deleted {
		return nil
	}
	return l.versions[len(l.versions)-1].Object
}

// Writes returns how often the system under test has written to the ConfigMap
// that has, or had last, that name.
func (r *Recorder) Writes(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	uid := r.newest[name]
	if r.lives[uid] == nil {
		return 0
	}
	return r.life(uid).Writes()
}

// CaughtUp returns nil when everything that the API server has now was
// recorded, and else what is missing.
func (r *Recorder) CaughtUp(ctx context.Context) error {
	list, err := r.client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list ConfigMaps: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return r.err
	}
	now := map[types.UID]string{}
	for _, object := range list.Items {
		now[object.UID] = object.ResourceVersion
	}
	var behind []string
	for uid, l := range r.lives {
		last := l.versions[len(l.versions)-1]
		version, exists := now[uid]
		if exists == last.Deleted || exists && version != last.Object.ResourceVersion {
			behind = append(behind, l.name)
		}
		delete(now, uid)
	}
	for _, object := range list.Items {
		if _, unseen := now[object.UID]; unseen && object.Name != rootCA {
			behind = append(behind, object.Name)
		}
	}
	if len(behind) > 0 {
		return fmt.Errorf("not yet recorded: %s", strings.Join(behind, ", "))
	}
	return nil
}
