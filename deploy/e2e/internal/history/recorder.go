// Package history records every version of every ConfigMap in a namespace and its writer. So a test
// knows how often each object was written.
package history

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kv8s/curl-me-that/proto/annotation"
)

// retryPause is between tries to reach the API server.
const retryPause = 100 * time.Millisecond

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
}

type life struct {
	name     string
	versions []Version
}

// Follow begins to record. Call Stop afterwards. The watch reconnects after the API
// server was unavailable. If its version has expired, it records the versions in between
// as one.
func Follow(ctx context.Context, client typed.ConfigMapInterface) (*Recorder, error) {
	recording, stop := context.WithCancel(context.WithoutCancel(ctx))
	r := &Recorder{
		client: client, stop: stop, ended: make(chan struct{}),
		lives: map[types.UID]*life{}, newest: map[string]types.UID{}, bySpec: map[string]struct{}{},
	}
	listed := make(chan struct{})
	reflector := cache.NewReflectorWithOptions(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return client.List(ctx, o)
		},
		WatchFuncWithContext: client.Watch,
	}, &corev1.ConfigMap{}, store{Recorder: r, listed: sync.OnceFunc(func() { close(listed) })},
		cache.ReflectorOptions{Backoff: &wait.Backoff{Duration: retryPause}})
	go func() {
		defer close(r.ended)
		reflector.RunWithContext(recording)
	}()
	select {
	case <-listed:
		return r, nil
	case <-ctx.Done():
		r.Stop()
		return nil, fmt.Errorf("list ConfigMaps: %w", context.Cause(ctx))
	}
}

// store lets a reflector write to a recorder.
type store struct {
	*Recorder
	// listed is called after the first list was recorded.
	listed func()
}

// Add records a new object.
func (s store) Add(object any) error { return s.record(object, false) }

// Update records a new version.
func (s store) Update(object any) error { return s.record(object, false) }

// Delete records the end of an object.
func (s store) Delete(object any) error { return s.record(object, true) }

// Resync does nothing.
func (s store) Resync() error { return nil }

// Replace records new versions in a list, and the end of objects that are missing in it.
func (s store) Replace(objects []any, _ string) error {
	there := sets.New[types.UID]()
	for _, object := range objects {
		if cm, ok := object.(*corev1.ConfigMap); ok {
			there.Insert(cm.UID)
			if !s.Seen(cm) {
				s.add(cm, false)
			}
		}
	}
	for _, l := range s.Lives() {
		last := l.Versions[len(l.Versions)-1]
		if !there.Has(l.UID) && !last.Deleted {
			s.add(last.Object, true)
		}
	}
	s.listed()
	return nil
}

func (s store) record(object any, deleted bool) error {
	cm, ok := object.(*corev1.ConfigMap)
	if !ok {
		return fmt.Errorf("record a %T: it is no ConfigMap", object)
	}
	s.add(cm, deleted)
	return nil
}

// add records a version, or the end of an object.
func (r *Recorder) add(object *corev1.ConfigMap, deleted bool) {
	if object.Name == annotation.RootCA {
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
	l.versions = append(l.versions, Version{Object: object, Deleted: deleted})
}

// Stop ends the recording.
func (r *Recorder) Stop() {
	r.stop()
	<-r.ended
}

// BySpec reports that a test has just written this version.
func (r *Recorder) BySpec(object metav1.Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bySpec[string(object.GetUID())+"/"+object.GetResourceVersion()] = struct{}{}
}

// Seen reports whether a version has been recorded.
func (r *Recorder) Seen(object metav1.Object) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lives[object.GetUID()]
	return l != nil && slices.ContainsFunc(l.versions, func(v Version) bool {
		return v.Object.ResourceVersion == object.GetResourceVersion()
	})
}

// AllBySpec attributes all versions so far to the test.
func (r *Recorder) AllBySpec() {
	for _, l := range r.Lives() {
		for _, v := range l.Versions {
			r.BySpec(v.Object)
		}
	}
}

// DeletedBySpec reports that a test is about to delete an object.
func (r *Recorder) DeletedBySpec(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bySpec[string(uid)] = struct{}{}
}

// Lives returns the records in the order of creation.
func (r *Recorder) Lives() []Life {
	r.mu.Lock()
	defer r.mu.Unlock()
	lives := make([]Life, 0, len(r.order))
	for _, uid := range r.order {
		lives = append(lives, r.life(uid))
	}
	return lives
}

// life returns a copy with the known writers. The caller holds the lock.
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

// Latest returns the newest recorded version of the ConfigMap of that name, or nil if it does not
// exist.
func (r *Recorder) Latest(name string) *corev1.ConfigMap {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lives[r.newest[name]]
	if l == nil || l.versions[len(l.versions)-1].Deleted {
		return nil
	}
	return l.versions[len(l.versions)-1].Object
}

// Writes returns the number of writes by the system under test to the current or last ConfigMap of
// that name.
func (r *Recorder) Writes(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	uid := r.newest[name]
	if r.lives[uid] == nil {
		return 0
	}
	return r.life(uid).Writes()
}

// CaughtUp returns nil once the latest version of every object was recorded, or else the
// difference.
func (r *Recorder) CaughtUp(ctx context.Context) error {
	list, err := r.client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list ConfigMaps: %w", err)
	}
	var behind []string
	there := sets.New[types.UID]()
	for i := range list.Items {
		object := &list.Items[i]
		there.Insert(object.UID)
		if object.Name != annotation.RootCA && !r.Seen(object) {
			behind = append(behind, object.Name)
		}
	}
	for _, l := range r.Lives() {
		if !there.Has(l.UID) && !l.Versions[len(l.Versions)-1].Deleted {
			behind = append(behind, l.Name)
		}
	}
	if len(behind) > 0 {
		return fmt.Errorf("not yet recorded: %s", strings.Join(behind, ", "))
	}
	return nil
}

// Version is one version of a ConfigMap.
type Version struct {
	// Object as it was then.
	Object *corev1.ConfigMap
	// Deleted reports that this is the end of the object.
	Deleted bool
	// BySpec reports that a test wrote or deleted this version. All others count as written by the
	// system under test.
	BySpec bool
}

// Life has all versions of one ConfigMap, oldest first. A re-created ConfigMap starts a new life.
type Life struct {
	// UID of the ConfigMap.
	UID types.UID
	// Name of the ConfigMap.
	Name string
	// Versions in the order of their writes.
	Versions []Version
}

// Writes returns the number of versions that the system under test wrote.
func (l Life) Writes() int {
	n := 0
	for _, v := range l.Versions {
		if !v.BySpec && !v.Deleted {
			n++
		}
	}
	return n
}
