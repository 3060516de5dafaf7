package random_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/hostile"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
)

const (
	// tooLarge is the size of a body above the limit, in bytes.
	tooLarge = 2 << 20
	// maxAnnotations is the maximum size of an object's annotations in bytes. room is the part left free, which
	// is too small for a status.
	maxAnnotations = 256 << 10
	room           = 60
)

// step is one possible step of a round.
type step struct {
	name string
	// once limits the step to one per round.
	once bool
	// prepare runs before all steps of the round.
	prepare func(ctx context.Context, r *round)
	do      func(ctx context.Context, r *round)
}

// steps returns the possible steps.
func steps() []step {
	return slices.Concat(edits(), drifts(), obstacles(), losses(), kills(), attacks(), pins())
}

// attacks returns the attacks of a hostile tenant.
func attacks() []step {
	return []step{{name: "a hostile tenant", once: true, do: func(ctx context.Context, r *round) {
		all := hostile.Attacks()
		attack := all[r.rng.IntN(len(all))]
		r.done[len(r.done)-1] += " " + attack.Name
		attack.Run(ctx, r.hostile)
		r.lifts = append(r.lifts, r.hostile.Clear)
	}}}
}

// onObject returns a step on one of the ordinary ConfigMaps.
func onObject(name string, do func(ctx context.Context, o *object)) step {
	return step{name: name, do: func(ctx context.Context, r *round) {
		o := r.objects[r.rng.IntN(ordinaryObjects)]
		r.done[len(r.done)-1] += " of " + o.Name
		do(ctx, o)
	}}
}

// edits returns users' edits of annotations.
func edits() []step {
	return []step{
		onObject("another URL", func(ctx context.Context, o *object) {
			o.pages[o.key()] = o.round.page()
			o.ask(ctx)
		}),
		onObject("another URL and back", func(ctx context.Context, o *object) {
			before, key := o.pairs(), o.key()
			page := o.pages[key]
			o.pages[key] = o.round.page()
			o.ask(ctx)
			o.pages[key] = page
			o.Ask(ctx, before)
		}),
		onObject("one pair more", func(ctx context.Context, o *object) {
			o.pages[fmt.Sprintf("more%d", o.round.rng.IntN(3))] = o.round.page()
			o.ask(ctx)
		}),
		onObject("one pair less", func(ctx context.Context, o *object) {
			if len(o.pages) > 1 {
				delete(o.pages, o.key())
				o.ask(ctx)
			}
		}),
		onObject("a refresh", func(ctx context.Context, o *object) { o.Annotate(ctx, refreshKey, "1s") }),
		onObject("no refresh", func(ctx context.Context, o *object) { o.Unannotate(ctx, refreshKey) }),
		onObject("a fetch now", func(ctx context.Context, o *object) {
			o.Annotate(ctx, nowKey, strconv.FormatUint(o.round.rng.Uint64(), 36))
		}),
		onObject("suspended", func(ctx context.Context, o *object) {
			o.Annotate(ctx, suspendKey, "true")
			o.round.lifts = append(o.round.lifts, func(ctx context.Context) { o.Unannotate(ctx, suspendKey) })
		}),
		onObject("re-created", func(ctx context.Context, o *object) {
			o.Delete(ctx)
			o.ConfigMap = o.round.Create(ctx, o.Name, world.Asking(o.pairs()))
		}),
	}
}

// pins returns rollbacks, and a loss of the history.
func pins() []step {
	return []step{
		onObject("a pin to an earlier body until the end of the round", func(ctx context.Context, o *object) {
			key, version := o.key(), o.version()
			if version == nil {
				return
			}
			s, _ := status.Parse(version.Annotations[annotation.StatusKey])
			if digest := s.Keys[key].SHA256; digest != "" {
				o.Annotate(ctx, sha256Key, key+"="+digest)
				o.round.lifts = append(o.round.lifts, func(ctx context.Context) { o.Unannotate(ctx, sha256Key) })
			}
		}),
		{name: "history purged", do: purge(pipeline.History, ">")},
	}
}

// drifts returns edits of data by other clients, and changes on servers.
func drifts() []step {
	return []step{
		onObject("a key edited by hand", func(ctx context.Context, o *object) {
			key := o.key()
			if o.Status(ctx, key).HasBody() && o.mayRepair() {
				o.Put(ctx, key, "by hand")
			}
		}),
		onObject("a key removed by hand", func(ctx context.Context, o *object) {
			if o.mayRepair() {
				o.Drop(ctx, o.key())
			}
		}),
		onObject("replaced without our status", func(ctx context.Context, o *object) {
			if o.mayRepair() {
				o.replace(ctx, func(next *corev1.ConfigMap) {
					delete(next.Annotations, annotation.StatusKey)
					next.Data, next.BinaryData = nil, nil
				})
			}
		}),
		onObject("replaced by an earlier version", func(ctx context.Context, o *object) {
			if o.mayRepair() {
				version := o.version()
				o.replace(ctx, func(next *corev1.ConfigMap) {
					next.Annotations, next.Data, next.BinaryData = maps.Clone(version.Annotations), version.Data, version.BinaryData
				})
			}
		}),
		onObject("another body", func(_ context.Context, o *object) {
			o.pages[o.key()].Says("another body " + strconv.FormatUint(o.round.rng.Uint64(), 36))
		}),
		onObject("a server that fails", func(_ context.Context, o *object) {
			page := o.pages[o.key()]
			page.Fails([]int{http.StatusServiceUnavailable, http.StatusNotFound}[o.round.rng.IntN(2)])
			o.round.lifts = append(o.round.lifts, func(context.Context) { page.Says("well again") })
		}),
	}
}

// obstacles returns objects that cannot be filled until the end of the round.
func obstacles() []step {
	return []step{
		{name: "a key of another owner, removed later", do: func(ctx context.Context, r *round) {
			o := r.newObject(ctx, world.Holding("key0", "theirs"))
			r.obstruct(o, func(ctx context.Context) { o.Drop(ctx, "key0") })
		}},
		{name: "an immutable ConfigMap, re-created later", do: func(ctx context.Context, r *round) {
			o := r.newObject(ctx, world.Immutable())
			r.obstruct(o, func(ctx context.Context) {
				o.Delete(ctx)
				o.ConfigMap = r.Create(ctx, o.Name, world.Asking(o.pairs()))
			})
		}},
		{name: "annotations without room for a status, emptied later", do: func(ctx context.Context, r *round) {
			o := r.unborn()
			size := maxAnnotations - room - len(annotation.DefaultKey) - len(o.pairs()) - len("filler")
			o.ConfigMap = r.Create(ctx, r.name(), world.Asking(o.pairs()), world.Annotated("filler", strings.Repeat("x", size)))
			r.obstruct(o, func(ctx context.Context) { o.Unannotate(ctx, "filler") })
		}},
		{name: "a body that is too large, and smaller later", do: func(ctx context.Context, r *round) {
			o := r.unborn()
			page := o.pages["key0"].Serves(make([]byte, tooLarge))
			o.ConfigMap = r.Create(ctx, r.name(), world.Asking(o.pairs()))
			r.obstruct(o, func(context.Context) { page.Says("small enough") })
		}},
		{name: "the permissions of the writer revoked, granted later", once: true, do: func(ctx context.Context, r *round) {
			r.rights.Revoke(ctx)
			r.objects = append(r.objects, r.newObject(ctx))
			r.lifts = append(r.lifts, r.rights.Grant)
		}},
	}
}

// obstruct adds an object and the function that removes its obstacle.
func (r *round) obstruct(o *object, lift func(context.Context)) {
	r.objects = append(r.objects, o)
	r.lifts = append(r.lifts, lift)
}

// losses returns losses of data in the broker.
func losses() []step {
	return append(slices.Concat(purges(), operations()), step{
		name: "the broker restored from a copy", once: true,
		prepare: func(_ context.Context, r *round) { r.broker.Save() },
		do:      func(_ context.Context, r *round) { r.broker.Restore() },
	})
}

// operations returns manual changes of streams by an operator.
func operations() []step {
	all := []step{
		onObject("a want purged", func(ctx context.Context, o *object) {
			GinkgoHelper()
			s := suitetest.Must(o.round.JetStream.Stream(ctx, pipeline.Requests))
			Expect(s.Purge(ctx, jetstream.WithPurgeSubject(o.wanted().WantSubject()))).To(Succeed())
		}),
		onObject("an earlier want published again", func(ctx context.Context, o *object) {
			GinkgoHelper()
			subject := o.wanted().WantSubject()
			if earlier := o.round.wants.of(subject); len(earlier) > 0 {
				suitetest.Must(o.round.JetStream.Publish(ctx, subject, earlier[o.round.rng.IntN(len(earlier))]))
			}
		}),
	}
	for stream, consumer := range map[string]string{
		pipeline.Requests: pipeline.FetcherConsumer,
		pipeline.Results:  pipeline.WriterConsumer,
	} {
		all = append(all, step{name: "the consumer " + consumer + " deleted", do: func(ctx context.Context, r *round) {
			GinkgoHelper()
			Expect(r.JetStream.DeleteConsumer(ctx, stream, consumer)).To(Succeed())
			r.pause(ctx)
			r.MakeStreams(ctx)
		}})
	}
	slices.SortFunc(all, func(a, b step) int { return strings.Compare(a.name, b.name) }) // a seed selects by index
	return all
}

func purge(stream, subject string) func(context.Context, *round) {
	return func(ctx context.Context, r *round) {
		GinkgoHelper()
		s := suitetest.Must(r.JetStream.Stream(ctx, stream))
		Expect(s.Purge(ctx, jetstream.WithPurgeSubject(subject))).To(Succeed())
	}
}

func purges() []step {
	return []step{
		{name: "results purged", do: purge(pipeline.Results, ">")},
		{name: "timers purged", do: purge(pipeline.Requests, "curl.timer.>")},
		{name: "requests purged", do: purge(pipeline.Requests, ">")},
		{name: "failures purged", do: purge(pipeline.DeadLetters, ">")},
	}
}

// kills returns steps that kill and restart programs.
func kills() []step {
	var all []step
	for _, name := range world.Services() {
		all = append(all, step{name: "kill -9 of the " + name, do: func(ctx context.Context, r *round) {
			GinkgoHelper()
			Expect(r.Service(name).Kill()).To(Succeed())
			r.meanwhile(ctx)
			Expect(r.Service(name).Again()).To(Succeed())
		}})
	}
	return append(all, step{name: "the broker killed", do: func(ctx context.Context, r *round) {
		GinkgoHelper()
		Expect(r.broker.Kill()).To(Succeed())
		r.pause(ctx)
		Expect(r.broker.Start()).To(Succeed())
	}})
}

// meanwhile runs up to three steps that need none of our programs.
func (r *round) meanwhile(ctx context.Context) {
	GinkgoHelper()
	all := slices.Concat(edits(), drifts(), purges())
	r.pause(ctx)
	for range r.rng.IntN(4) {
		step := all[r.rng.IntN(len(all))]
		r.done = append(r.done, "meanwhile "+step.name)
		step.do(ctx, r)
		r.pause(ctx)
	}
}

// maxRepairs is the maximum number of repairs of one object in a round, because more would be delayed for too
// long.
const maxRepairs = 2

// Annotations that package annotation does not name.
const (
	refreshKey = "x-kv8s.io/curl-refresh"
	nowKey     = "x-kv8s.io/curl-now"
	suspendKey = "x-kv8s.io/curl-suspend"
	sha256Key  = "x-kv8s.io/curl-sha256"
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
