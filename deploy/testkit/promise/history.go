package promise

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/kv8s/curl-me-that/proto/annotation"
)

// retryPause is the pause before the API server is tried again.
const retryPause = 100 * time.Millisecond

// Recorder records every version of every ConfigMap in a namespace, so that a test knows who wrote each object and
// how often.
type Recorder struct {
	client typed.ConfigMapInterface
	stop   context.CancelFunc
	ended  chan struct{}

	mu     sync.Mutex
	lives  map[types.UID]*Life // BySpec is not set
	newest map[string]*Life    // by name
	order  []*Life
	bySpec map[string]struct{} // uid/resourceVersion of each write, uid of each deletion
}

// Follow starts to record. Call Stop afterwards. The watch reconnects if the API server was unavailable. If its
// version has expired, several changes of an object may be recorded as one.
func Follow(ctx context.Context, client typed.ConfigMapInterface) (*Recorder, error) {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	r := &Recorder{
		client: client, stop: stop, ended: make(chan struct{}),
		lives: map[types.UID]*Life{}, newest: map[string]*Life{}, bySpec: map[string]struct{}{},
	}
	version, err := r.list(ctx)
	if err != nil {
		stop()
		return nil, err
	}
	go func() {
		defer close(r.ended)
		r.follow(ctx, version)
	}()
	return r, nil
}

// follow records until ctx is done, and continues after any error.
func (r *Recorder) follow(ctx context.Context, version string) {
	_ = wait.PollUntilContextCancel(ctx, retryPause, true, func(ctx context.Context) (bool, error) {
		if version == "" {
			version, _ = r.list(ctx)
		}
		if version != "" {
			version = r.watch(ctx, version)
		}
		return false, nil
	})
}

// list records the current objects, and returns the version to watch from.
func (r *Recorder) list(ctx context.Context) (version string, err error) {
	unseen, gone, version, err := r.missing(ctx)
	for _, object := range unseen {
		r.add(watch.Modified, object)
	}
	for _, object := range gone {
		r.add(watch.Deleted, object)
	}
	return version, err
}

// missing lists the ConfigMaps. It returns the versions and deletions that are not recorded yet, and the
// version of the list.
func (r *Recorder) missing(ctx context.Context) (unseen, gone []*corev1.ConfigMap, version string, err error) {
	list, err := r.client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, "", fmt.Errorf("list ConfigMaps: %w", err)
	}
	there := map[types.UID]bool{}
	for i := range list.Items {
		object := &list.Items[i]
		there[object.UID] = true
		if object.Name != annotation.RootCA && !r.Seen(object) {
			unseen = append(unseen, object)
		}
	}
	for _, l := range r.Lives() {
		last := l.Versions[len(l.Versions)-1]
		if !there[l.UID] && !last.Deleted {
			gone = append(gone, last.Object)
		}
	}
	return unseen, gone, list.ResourceVersion, nil
}

// watch records changes after a version until the watch ends. It returns the version to continue from, or "" if
// a new list is needed.
func (r *Recorder) watch(ctx context.Context, version string) (last string) {
	watcher, err := r.client.Watch(ctx, metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true})
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return ""
	}
	if err != nil {
		return version
	}
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		object, ok := event.Object.(*corev1.ConfigMap)
		if !ok { // an error
			return ""
		}
		version = object.ResourceVersion
		r.add(event.Type, object)
	}
	return version
}

func (r *Recorder) add(kind watch.EventType, object *corev1.ConfigMap) {
	if object.Name == annotation.RootCA || kind == watch.Bookmark {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lives[object.UID]
	if l == nil {
		l = &Life{UID: object.UID, Name: object.Name}
		r.lives[object.UID], r.newest[object.Name] = l, l
		r.order = append(r.order, l)
	}
	l.Versions = append(l.Versions, Version{Object: object, Deleted: kind == watch.Deleted})
}

// Stop ends the recording.
func (r *Recorder) Stop() {
	r.stop()
	<-r.ended
}

// BySpec attributes this version to the test.
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
	return l != nil && slices.ContainsFunc(l.Versions, func(v Version) bool {
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

// DeletedBySpec attributes the deletion of an object to the test. Call it before the deletion.
func (r *Recorder) DeletedBySpec(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bySpec[string(uid)] = struct{}{}
}

// Lives returns the lives of all ConfigMaps in the order of creation.
func (r *Recorder) Lives() []Life {
	r.mu.Lock()
	defer r.mu.Unlock()
	lives := make([]Life, 0, len(r.order))
	for _, l := range r.order {
		lives = append(lives, r.attributed(*l))
	}
	return lives
}

// attributed returns a copy with BySpec set. The caller holds the lock.
func (r *Recorder) attributed(l Life) Life {
	l.Versions = slices.Clone(l.Versions)
	for i, v := range l.Versions {
		id := string(l.UID)
		if !v.Deleted {
			id += "/" + v.Object.ResourceVersion
		}
		_, l.Versions[i].BySpec = r.bySpec[id]
	}
	return l
}

// Latest returns the newest recorded version of a ConfigMap, or nil if it does not exist.
func (r *Recorder) Latest(name string) *corev1.ConfigMap {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.newest[name]
	if l == nil || l.Versions[len(l.Versions)-1].Deleted {
		return nil
	}
	return l.Versions[len(l.Versions)-1].Object
}

// Writes returns the number of writes by the system under test to the current or last ConfigMap with a name.
func (r *Recorder) Writes(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.newest[name]
	if l == nil {
		return 0
	}
	return r.attributed(*l).Writes()
}

// CaughtUp returns nil if all current versions and deletions are recorded, or an error that lists the missing
// ones.
func (r *Recorder) CaughtUp(ctx context.Context) error {
	unseen, gone, _, err := r.missing(ctx)
	if err != nil {
		return err
	}
	var behind []string
	for _, object := range slices.Concat(unseen, gone) {
		behind = append(behind, object.Name)
	}
	if len(behind) > 0 {
		return fmt.Errorf("not yet recorded: %s", strings.Join(behind, ", "))
	}
	return nil
}

// Version is one version of a ConfigMap.
type Version struct {
	// Object is the recorded ConfigMap.
	Object *corev1.ConfigMap
	// Deleted reports that the object was deleted.
	Deleted bool
	// BySpec reports that a test wrote or deleted this version. Any other counts as written by the system under
	// test.
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
