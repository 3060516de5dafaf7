package informer_test

import (
	"maps"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/watcher/internal/informer"
)

func TestInformer(t *testing.T) { suitetest.Run(t, "Informer") }

// kept caches the label "value" of an object.
type kept struct {
	informer.Meta
	value string
}

func read(m *metav1.PartialObjectMetadata) *kept {
	value, found := m.Labels["value"]
	if !found {
		return nil
	}
	return &kept{Meta: informer.MetaOf(m), value: value}
}

// object returns object x of a namespace, with a value to cache.
func object(namespace, version, value string) *metav1.PartialObjectMetadata {
	m := unwanted(namespace, version)
	m.Labels = map[string]string{"value": value}
	return m
}

// unwanted is an object that is not cached.
func unwanted(namespace, version string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "x", UID: types.UID(namespace), ResourceVersion: version,
	}}
}

var _ = Describe("The informer", func() {
	var (
		s        *informer.Informer[*kept]
		notified map[string]bool
		counted  map[informer.EventKind]int
	)
	open := func(c informer.Config) {
		notified, counted = map[string]bool{}, map[informer.EventKind]int{}
		s = informer.New(c, informer.Deps[*metav1.PartialObjectMetadata, *kept]{
			Read: read, Now: time.Now, Count: func(e informer.EventKind) { counted[e]++ },
			Notify: func(name types.NamespacedName, live bool) { notified[name.Namespace] = live },
		})
	}
	value := func(namespace string) string {
		if o := s.Get(types.NamespacedName{Namespace: namespace, Name: "x"}); o != nil {
			return o.value
		}
		return ""
	}
	changes := func() map[string]bool {
		defer func() { notified = map[string]bool{} }()
		return maps.Clone(notified)
	}

	It("notifies only of changes, and marks those from the watch as live", func() {
		open(informer.Config{})
		watch := s.Store("")
		trimmed := suitetest.Must(watch.Transformer()(unwanted("d", "1")))
		Expect(watch.Replace([]any{object("a", "1", "v"), object("b", "1", "v"), unwanted("c", "1"), trimmed},
			"5")).To(Succeed())
		Expect(changes()).To(Equal(map[string]bool{"a": false, "b": false}))
		Expect(s.Get(types.NamespacedName{Namespace: "a", Name: "x"}).Listed).To(BeTrue())
		Expect(s.Watched()).To(Equal(4))

		recreated := object("b", "12", "v")
		recreated.UID = "another"
		for _, step := range []struct {
			what string
			do   func(any) error
			o    *metav1.PartialObjectMetadata
			want map[string]bool
		}{
			{"edit", watch.Update, object("a", "6", "w"), map[string]bool{"a": true}},
			{"same version again", watch.Update, object("a", "6", "w"), map[string]bool{}},
			{"edit of an uncached object", watch.Update, unwanted("c", "7"), map[string]bool{}},
			{"cached from now on", watch.Update, object("c", "8", "v"), map[string]bool{"c": true}},
			{"no longer cached", watch.Update, unwanted("c", "9"), map[string]bool{"c": true}},
			{"deleted", watch.Delete, object("b", "10", "v"), map[string]bool{"b": true}},
			{"deleted again", watch.Delete, object("b", "10", "v"), map[string]bool{}},
			{"created", watch.Add, object("b", "12", "v"), map[string]bool{"b": true}},
			{"recreated", watch.Update, recreated, map[string]bool{"b": true}},
		} {
			Expect(step.do(step.o)).To(Succeed(), step.what)
			Expect(changes()).To(Equal(step.want), step.what)
		}
		Expect(s.Names()).To(ConsistOf(HaveField("Namespace", "a"), HaveField("Namespace", "b")))
		Expect(s.Get(types.NamespacedName{Namespace: "a", Name: "x"}).Listed).To(BeFalse())
		Expect(watch.Replace([]any{object("b", "13", "v")}, "14")).To(Succeed())
		Expect(changes()).To(Equal(map[string]bool{"a": false, "b": false}))
		Expect(s.Len()).To(Equal(1))
		Expect(watch.Bookmark("15")).To(Succeed())
		Expect(counted).To(Equal(map[informer.EventKind]int{
			informer.List: 2, informer.Added: 1, informer.Modified: 6, informer.Deleted: 2, informer.Bookmark: 1,
		}))
	})

	It("trims each object of a list once", func() {
		open(informer.Config{})
		trim := s.Store("").Transformer()
		for _, o := range []*metav1.PartialObjectMetadata{object("a", "1", "v"), unwanted("b", "1")} {
			once := suitetest.Must(trim(o))
			Expect(trim(once)).To(Equal(once))
			key := suitetest.Must(cache.DeletionHandlingMetaNamespaceKeyFunc(once))
			Expect(key).To(Equal(o.Namespace+"/x"), "key in the temporary store")
			Expect(s.Store("").Add(once)).To(Succeed())
		}
		Expect(value("a")).To(Equal("v"))
		Expect(s.Len()).To(Equal(1))
	})

	It("rejects objects of another type", func() {
		open(informer.Config{})
		watch := s.Store("")
		for _, do := range []func(any) error{
			watch.Add, watch.Delete,
			func(o any) error { return watch.Replace([]any{o}, "") },
		} {
			Expect(do("what is this")).To(MatchError(ContainSubstring("unexpected type string")))
		}
	})

	It("keeps our own write when the watch delivers an older version", func() {
		open(informer.Config{})
		watch := s.Store("")
		Expect(watch.Replace([]any{object("a", "5", "listed")}, "5")).To(Succeed())
		changes()
		s.Put(object("a", "8", "written"))
		Expect(watch.Update(object("a", "7", "before"))).To(Succeed())
		Expect(value("a")).To(Equal("written"))
		Expect(watch.Update(object("a", "8", "written"))).To(Succeed())
		Expect(changes()).To(Equal(map[string]bool{"a": true}), "by the write")
		Expect(watch.Update(object("a", "9", "after"))).To(Succeed())
		Expect(value("a")).To(Equal("after"))
	})

	It("ignores the response to a write if the watch is at a later version", func() {
		open(informer.Config{})
		watch := s.Store("")
		Expect(watch.Replace([]any{object("a", "5", "listed")}, "5")).To(Succeed())
		Expect(watch.Delete(object("a", "9", ""))).To(Succeed())
		s.Put(object("a", "8", "written"))
		Expect(value("a")).To(BeEmpty())
	})

	It("trusts a list, even with lower versions, as after a restore", func() {
		open(informer.Config{})
		watch := s.Store("")
		Expect(watch.Replace([]any{object("a", "50", "new"), object("b", "51", "gone")}, "51")).To(Succeed())
		Expect(watch.Replace([]any{object("a", "5", "restored")}, "5")).To(Succeed())
		Expect(value("a")).To(Equal("restored"))
		Expect(s.Len()).To(Equal(1))
		s.Put(object("a", "6", "written"))
		Expect(value("a")).To(Equal("written"))
	})

	It("follows an object whose versions are not numbers", func() {
		open(informer.Config{})
		watch := s.Store("")
		Expect(watch.Replace([]any{object("a", "x", "listed")}, "x")).To(Succeed())
		Expect(watch.Update(object("a", "y", "updated"))).To(Succeed())
		Expect(value("a")).To(Equal("updated"))
		Expect(watch.Replace([]any{object("a", "z", "listed again")}, "z")).To(Succeed())
		Expect(value("a")).To(Equal("listed again"))
		Expect(s.Get(types.NamespacedName{Namespace: "a", Name: "x"}).ResourceVersion()).To(BeEmpty(),
			"no precondition is possible")
	})

	It("is synced when each namespace is listed, and a list affects only its namespace", func() {
		open(informer.Config{Namespaces: []string{"a", "b"}})
		Expect(s.Store("a").Replace([]any{object("a", "1", "one")}, "1")).To(Succeed())
		Expect(s.Synced()).NotTo(BeClosed())
		Expect(s.Store("b").Replace([]any{object("b", "1", "two")}, "1")).To(Succeed())
		Expect(s.Synced()).To(BeClosed())
		Expect(s.Store("b").Replace(nil, "2")).To(Succeed())
		Expect(value("a")).To(Equal("one"))
		Expect(value("b")).To(BeEmpty())
		Expect(s.Silence()).To(BeNumerically("<", time.Minute))
	})

	It("waits for a forbidden namespace, unless SkipForbidden is set", func() {
		both := []string{"a", "b"}
		open(informer.Config{Namespaces: both})
		s.Refuse("b")
		Expect(s.Store("a").Replace(nil, "1")).To(Succeed())
		Expect(s.Synced()).NotTo(BeClosed())

		open(informer.Config{Namespaces: both, SkipForbidden: true})
		s.Refuse("a")
		s.Refuse("b")
		Expect(s.Synced()).NotTo(BeClosed(), "none can be read")
		Expect(s.Store("a").Replace(nil, "1")).To(Succeed())
		Expect(s.Synced()).To(BeClosed())
		Expect(s.Listed("a")).To(BeTrue())
		Expect(s.Listed("b")).To(BeFalse())
		Expect(s.Store("b").Replace(nil, "2")).To(Succeed())
		Expect(s.Listed("b")).To(BeTrue())
	})
})
