package store_test

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/suitetest"
	"github.com/kv8s/curl-me-that/watcher/keeper/internal/store"
)

func TestStore(t *testing.T) { suitetest.Run(t, "Store") }

// object of a namespace, of which the label "value" is kept.
func object(namespace, version, value string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "x", UID: types.UID(namespace), ResourceVersion: version, Labels: map[string]string{"value": value},
	}}
}

var _ = Describe("The store", func() {
	var (
		s        *store.Store[string]
		notified int
	)
	open := func(scopes ...string) {
		notified = 0
		s = store.New(store.Config[string]{
			Scopes: scopes, Now: time.Now, Notify: func(types.NamespacedName, bool) { notified++ },
			Read: func(object any) (string, bool) {
				m, ok := object.(*metav1.PartialObjectMetadata)
				return m.Labels["value"], ok
			},
		})
	}
	value := func(namespace string) string {
		if item := s.Get(types.NamespacedName{Namespace: namespace, Name: "x"}); item != nil {
			return item.Value
		}
		return ""
	}

	It("goes back to nothing older than one's own write when the watch delivers that later", func() {
		open("")
		watch := s.Filler("")
		Expect(watch.Replace([]any{object("a", "5", "listed")}, "5")).To(Succeed())
		s.Put(object("a", "8", "written"))
		Expect(watch.Update(object("a", "7", "before"))).To(Succeed())
		Expect(value("a")).To(Equal("written"))
		Expect(watch.Update(object("a", "8", "written"))).To(Succeed())
		Expect(notified).To(Equal(2), "once for the list, once for the write")
		Expect(watch.Update(object("a", "9", "after"))).To(Succeed())
		Expect(value("a")).To(Equal("after"))
	})

	It("does not take the answer to a write when the watch has gone past it, since the object may be gone", func() {
		open("")
		watch := s.Filler("")
		Expect(watch.Replace([]any{object("a", "5", "listed")}, "5")).To(Succeed())
		Expect(watch.Delete(object("a", "9", ""))).To(Succeed())
		s.Put(object("a", "8", "written"))
		Expect(value("a")).To(BeEmpty())
	})

	It("takes a list as the truth, also when its versions are lower, as after a restore", func() {
		open("")
		watch := s.Filler("")
		Expect(watch.Replace([]any{object("a", "50", "new"), object("b", "51", "gone")}, "51")).To(Succeed())
		Expect(watch.Replace([]any{object("a", "5", "restored")}, "5")).To(Succeed())
		Expect(value("a")).To(Equal("restored"))
		Expect(s.Len()).To(Equal(1))
		s.Put(object("a", "6", "written"))
		Expect(value("a")).To(Equal("written"))
	})

	It("is synced when each namespace has been listed, and a list is about its namespace only", func() {
		open("a", "b")
		Expect(s.Filler("a").Replace([]any{object("a", "1", "one")}, "1")).To(Succeed())
		Expect(s.Synced()).NotTo(BeClosed())
		Expect(s.Filler("b").Replace([]any{object("b", "1", "two")}, "1")).To(Succeed())
		Expect(s.Synced()).To(BeClosed())
		Expect(s.Filler("b").Replace(nil, "2")).To(Succeed())
		Expect(value("a")).To(Equal("one"))
		Expect(value("b")).To(BeEmpty())
	})
})
