package random_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// maxRepairs is the maximum number of repairs of one object in a round, because more would be delayed for too
// long.
const maxRepairs = 2

// Annotations that package annotation does not name.
const (
	refreshKey = "x-kv8s.io/curl-refresh"
	nowKey     = "x-kv8s.io/curl-now"
	suspendKey = "x-kv8s.io/curl-suspend"
)

// object is a ConfigMap with its requests.
type object struct {
	*world.ConfigMap
	round *round
	// pages has the requested pages by key.
	pages   map[string]*origin.Page
	repairs int
}

// newObject creates a ConfigMap with one or two keys, some of them with a refresh. traits are
// applied last.
func (r *round) newObject(ctx context.Context, traits ...world.Trait) *object {
	GinkgoHelper()
	o := r.unborn()
	all := []world.Trait{world.Asking(o.pairs())}
	if r.rng.IntN(2) == 0 {
		all = append(all, world.Annotated(refreshKey, "1s"))
	}
	o.ConfigMap = r.Create(ctx, r.name(), append(all, traits...)...)
	return o
}

// unborn returns an object that is not created yet.
func (r *round) unborn() *object {
	o := &object{round: r, pages: map[string]*origin.Page{}}
	for i := range 1 + r.rng.IntN(2) {
		o.pages[fmt.Sprintf("key%d", i)] = r.page()
	}
	return o
}

// page returns a new page with its own text and, at random, an ETag.
func (r *round) page() *origin.Page {
	r.named++
	path := fmt.Sprintf("/%d/%d", r.seed, r.named)
	page := r.Origin.Page(path).Says("body of " + path)
	if r.rng.IntN(2) == 0 {
		page.Tagged()
	}
	return page
}

// pairs returns the annotation.
func (o *object) pairs() string {
	var all []string
	for _, key := range o.keys() {
		all = append(all, key+"="+o.pages[key].URL())
	}
	return strings.Join(all, " ")
}

func (o *object) keys() []string { return slices.Sorted(maps.Keys(o.pages)) }

// key returns a random key.
func (o *object) key() string {
	keys := o.keys()
	return keys[o.round.rng.IntN(len(keys))]
}

// wanted returns a random key of the object, as in the stream of requests.
func (o *object) wanted() pipeline.Key {
	return pipeline.Key{Namespace: o.round.Namespace, Name: o.Name, Key: o.key()}
}

// ask sets the annotation to the current pages.
func (o *object) ask(ctx context.Context) { o.Ask(ctx, o.pairs()) }

// mayRepair counts a repair and reports whether it is allowed.
func (o *object) mayRepair() bool {
	o.repairs++
	return o.repairs <= maxRepairs
}

// replace replaces the content of the object, like kubectl replace.
func (o *object) replace(ctx context.Context, change func(*corev1.ConfigMap)) {
	GinkgoHelper()
	now := o.Get(ctx)
	next := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: o.Name, Annotations: maps.Clone(now.Annotations)},
		Data:       maps.Clone(now.Data), BinaryData: now.BinaryData,
	}
	change(next)
	o.Replace(ctx, next)
}

// version returns a random earlier version of the object.
func (o *object) version() *corev1.ConfigMap {
	latest := o.round.History.Latest(o.Name)
	for _, life := range o.round.History.Lives() {
		if latest != nil && life.UID == latest.UID {
			return life.Versions[o.round.rng.IntN(len(life.Versions))].Object
		}
	}
	return latest
}
