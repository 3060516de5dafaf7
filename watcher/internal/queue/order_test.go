package queue_test

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/kv8s/curl-me-that/watcher/internal/queue"
)

func name(text string) types.NamespacedName {
	namespace, name, _ := strings.Cut(text, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}
}

func TestOrder(t *testing.T) {
	t.Parallel()
	// Steps: name pushes, !name marks as urgent, ?name touches, and - pops.
	for title, c := range map[string]struct{ steps, want string }{
		"backlog in turns":              {"b/x a/z b/a a/b-1 a/b", "b/x a/z b/a a/b-1 a/b"},
		"namespaces take turns":         {"a/1 a/2 a/3 a/4 b/1 c/1 b/2", "a/1 b/1 c/1 a/2 b/2 a/3 a/4"},
		"urgent first, in turns":        {"a/a !z/z z/z !z/x z/x !y/y y/y a/b", "z/z y/y z/x a/a a/b"},
		"late to a long backlog":        {"a/1 a/2 a/3 a/4 - - b/1", "a/3 b/1 a/4"},
		"promoted while it waits":       {"a/a a/b a/c !a/c ?a/c", "a/c a/a a/b"},
		"promoted in order":             {"a/a a/b a/c !a/c ?a/c !a/b ?a/b ?a/c", "a/c a/b a/a"},
		"touched without a mark":        {"a/a a/b ?a/b", "a/a a/b"},
		"touched when it does not wait": {"!a/b ?a/b a/a", "a/a"},
		"urgent once":                   {"!b/b b/b - a/a b/b", "a/a b/b"},
		"promoted, and back again":      {"a/a a/b !a/b ?a/b - a/b", "a/a a/b"},
		"marked before it waits":        {"!b/b a/a b/b", "b/b a/a"},
	} {
		o := queue.NewOrder()
		for step := range strings.FieldsSeq(c.steps) {
			switch rest := step[1:]; step[0] {
			case '!':
				o.Urgent(name(rest))
			case '?':
				o.Touch(name(rest))
			case '-':
				o.Pop()
			default:
				o.Push(name(step))
			}
		}
		var got []string
		for o.Len() > 0 {
			got = append(got, o.Pop().String())
		}
		NewWithT(t).Expect(got).To(Equal(strings.Fields(c.want)), title)
	}
}

func TestEditsDoNotStarveTheBacklog(t *testing.T) {
	t.Parallel()
	o, edited := queue.NewOrder(), name("a/edited")
	for n := range 10 {
		o.Push(name(fmt.Sprint("b/", n)))
	}
	for range 100 {
		o.Urgent(edited)
		o.Push(edited)
		o.Pop()
	}
	NewWithT(t).Expect(o.Len()).To(BeNumerically("<=", 1), "only the last edit")
}

func TestUnderAWorkqueue(t *testing.T) {
	t.Parallel()
	g, order := NewWithT(t), queue.NewOrder()
	work := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[types.NamespacedName]{Queue: order})
	t.Cleanup(work.ShutDown)
	next := func(want string) {
		t.Helper()
		got, _ := work.Get()
		g.Expect(got.String()).To(Equal(want))
	}
	for _, n := range []string{"a/a", "b/b", "a/c", "a/b"} {
		work.Add(name(n))
	}
	work.Add(name("a/a")) // deduplicated
	next("a/a")

	order.Urgent(name("b/b")) // a live edit of a waiting object
	work.Add(name("b/b"))
	order.Urgent(name("a/a")) // and of one in progress
	work.Add(name("a/a"))
	next("b/b")
	next("a/c")
	work.Done(name("a/a"))
	next("a/a")
	work.Done(name("a/a"))
	next("a/b")
	g.Expect(work.Len()).To(BeZero())
}
