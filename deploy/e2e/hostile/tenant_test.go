package hostile_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/annotation"
)

const (
	refreshKey = "x-kv8s.io/curl-refresh"
	nowKey     = "x-kv8s.io/curl-now"
	suspendKey = "x-kv8s.io/curl-suspend"

	// refresh is the minimum interval by default.
	refresh = "10s"
	// control and exposure are how long the other tenant creates keys, one after the other, before
	// and during an attack.
	control, exposure = time.Second, 5 * time.Second
	// grace is how much longer the other tenant may wait than without an attack.
	grace = 2 * time.Second
	// patience is how long a sample is waited for before the spec fails.
	patience = 90 * time.Second
	// memoryLimit is the limit of the chart for watcher and writer; the fetcher's is no lower.
	memoryLimit = 256 << 20
	// goMemoryLimit is the part of it that the chart gives to the Go runtime.
	goMemoryLimit = "GOMEMLIMIT=204MiB"
)

// attacker is a tenant who may only edit ConfigMaps in one namespace.
type attacker struct {
	*world.World
	host *origin.Server
}

// attack is one way to misuse that. It starts, and goes on by itself.
type attack struct {
	name string
	run  func(ctx context.Context, a *attacker)
}

var _ = Describe("Another tenant's keys are filled in time", Ordered, ContinueOnFailure, func() {
	var (
		w     *world.World
		a     *attacker
		other *world.World
		named int
	)
	BeforeAll(func(ctx SpecContext) {
		w = env.World(ctx, world.Options{
			Tenants: 1, Env: []string{goMemoryLimit},
			Flags: map[string][]string{
				world.Watcher: {"--audit-interval=8s", "--min-refresh=" + refresh}, world.Fetcher: {"--min-refresh=" + refresh},
			},
		})
		w.Unfinished()
		a, other = &attacker{World: w, host: startHost()}, w.Tenants[0]
		DeferCleanup(a.host.Close)
		DeferCleanup(func(ctx SpecContext) { // the attacker's own writes are no promises
			w.EventuallyCaughtUp(ctx)
			w.History.AllBySpec()
		})
	})
	// fill creates keys, one after the other, and returns the 90th percentile of the times until they
	// are filled, and the longest.
	fill := func(ctx context.Context, window time.Duration) (p90, longest time.Duration) {
		GinkgoHelper()
		var took []time.Duration
		for first := time.Now(); len(took) == 0 || time.Since(first) < window; {
			named++
			name := fmt.Sprintf("ordinary-%d", named)
			page := other.Origin.Page("/" + name).Says(name)
			began := time.Now()
			other.Create(ctx, name, world.Asking("mydata="+page.URL())).EventuallyHasDataWithin(ctx, patience, "mydata", name)
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		return took[len(took)*9/10], took[len(took)-1]
	}
	for _, way := range attacks() {
		It("while a tenant "+way.name, func(ctx SpecContext) {
			DeferCleanup(func(ctx SpecContext) { a.clear(ctx) })
			before, _ := fill(ctx, control)
			way.run(ctx, a)
			during, longest := fill(ctx, exposure)
			AddReportEntry("p90 before and during, longest", fmt.Sprintf("%v, %v, %v", before, during, longest))
			Expect(during).To(BeNumerically("<=", max(2*before, before+grace)))
		}, SpecTimeout(5*time.Minute))
	}
	It("without a failed audit, and within the memory limits of the chart", func(ctx SpecContext) {
		Expect(w.Watcher().Log.Matching("audit could not read")).To(BeEmpty())
		for _, s := range []*world.Service{w.Watcher(), w.Fetcher(), w.Writer()} {
			Expect(s.Metric(ctx, "process_resident_memory_bytes")).To(BeNumerically("<", memoryLimit), s.Name)
			Expect(s.Running()).To(BeTrue(), s.Name)
		}
	})
})

// attacks are the ways of the review of the protocol, and more.
func attacks() []attack {
	return []attack{
		{"sets curl-now on 300 keys of a slow host", func(ctx context.Context, a *attacker) {
			a.create(ctx, 300, func(i int) []world.Trait { return []world.Trait{a.asking("slow", i), world.Annotated(nowKey, "1")} })
			a.each(ctx, 300, func(i int) map[string]any { return annotate(nowKey, "2") })
		}},
		{"writes ten statuses of 220 KiB", func(ctx context.Context, a *attacker) {
			a.create(ctx, 10, func(i int) []world.Trait {
				return []world.Trait{world.Annotated(annotation.StatusKey, forged(20_000, nil))}
			})
		}},
		{"claims 1,300 written keys that nobody asks for", func(ctx context.Context, a *attacker) {
			entry := map[string]any{"sha256": strings.Repeat("0", 64)}
			a.create(ctx, 10, func(i int) []world.Trait {
				return []world.Trait{world.Annotated(annotation.StatusKey, forged(130, entry))}
			})
		}},
		{"makes up a reason for each of 500 failures", func(ctx context.Context, a *attacker) {
			a.create(ctx, 500, func(i int) []world.Trait {
				entry := map[string]any{"error": fmt.Sprintf("Reason%d", i), "since": "2026-01-02T03:04:05Z"}
				return []world.Trait{a.asking("missing", i), world.Annotated(annotation.StatusKey, forged(1, entry))}
			})
		}},
		{"has 1,024 keys with the longest names", func(ctx context.Context, a *attacker) {
			a.create(ctx, 16, func(i int) []world.Trait {
				var pairs []string
				for k := range 64 {
					pairs = append(pairs, fmt.Sprintf("%s%02d=%s/missing/%d", strings.Repeat("k.", 110), k, a.bare(), k))
				}
				return []world.Trait{world.Asking(strings.Join(pairs, " "))}
			}, strings.Repeat("n.", 110)+"n")
		}},
		{"edits 100 keys of a slow host again and again", func(ctx context.Context, a *attacker) {
			a.create(ctx, 100, func(i int) []world.Trait { return []world.Trait{a.asking("slow", i)} })
			for edit := range 4 {
				a.each(ctx, 100, func(i int) map[string]any {
					return annotate(annotation.DefaultKey, fmt.Sprintf("mydata=%s/slow/%d-%d", a.bare(), i, edit))
				})
			}
		}},
		{"asks for one slow URL in 200 objects", func(ctx context.Context, a *attacker) {
			a.create(ctx, 200, func(i int) []world.Trait { return []world.Trait{a.asking("slow", 0)} })
		}},
		{"refreshes 200 keys of a flapping host", func(ctx context.Context, a *attacker) {
			a.create(ctx, 200, func(i int) []world.Trait {
				return []world.Trait{a.asking("flapping", i), world.Annotated(refreshKey, refresh)}
			})
		}},
		{"asks for two bodies that do not fit into one object, 10 times", func(ctx context.Context, a *attacker) {
			a.create(ctx, 10, func(i int) []world.Trait {
				return []world.Trait{world.Asking(fmt.Sprintf("a=%[1]s/large/%[2]d b=%[1]s/large/b%[2]d", a.bare(), i)), world.Annotated(refreshKey, refresh)}
			})
		}},
		{"deletes and creates 100 objects again", func(ctx context.Context, a *attacker) {
			for range 3 {
				a.create(ctx, 100, func(i int) []world.Trait { return []world.Trait{a.asking("instant", i)} })
				a.clear(ctx)
			}
		}},
		{"has 500 keys that fail with 404", func(ctx context.Context, a *attacker) {
			a.create(ctx, 500, func(i int) []world.Trait {
				return []world.Trait{a.asking("missing", i), world.Annotated(refreshKey, refresh)}
			})
		}},
		{"has 300 keys of a host that hangs", func(ctx context.Context, a *attacker) {
			a.create(ctx, 300, func(i int) []world.Trait { return []world.Trait{a.asking("hanging", i)} })
		}},
		{"has 100 keys of a host that asks for an hour of pause", func(ctx context.Context, a *attacker) {
			a.create(ctx, 100, func(i int) []world.Trait { return []world.Trait{a.asking("busy", i)} })
		}},
		{"has 200 immutable objects", func(ctx context.Context, a *attacker) {
			a.create(ctx, 200, func(i int) []world.Trait { return []world.Trait{a.asking("instant", i), world.Immutable()} })
		}},
		{"asks for 500 keys that exist", func(ctx context.Context, a *attacker) {
			a.create(ctx, 500, func(i int) []world.Trait {
				return []world.Trait{a.asking("instant", i), world.Holding("mydata", "mine")}
			})
		}},
		{"refreshes 20 large bodies that change", func(ctx context.Context, a *attacker) {
			a.create(ctx, 20, func(i int) []world.Trait {
				return []world.Trait{a.asking("large", i), world.Annotated(refreshKey, refresh)}
			})
		}},
		{"refreshes 1,000 keys", func(ctx context.Context, a *attacker) {
			a.create(ctx, 250, func(i int) []world.Trait {
				var pairs []string
				for k := range 4 {
					pairs = append(pairs, fmt.Sprintf("key%d=%s/instant/%d", k, a.bare(), 4*i+k))
				}
				return []world.Trait{world.Asking(strings.Join(pairs, " ")), world.Annotated(refreshKey, refresh)}
			})
		}},
		{"breaks and corrects 200 annotations", func(ctx context.Context, a *attacker) {
			a.create(ctx, 200, func(i int) []world.Trait { return []world.Trait{world.Asking("not a pair")} })
			a.each(ctx, 200, func(i int) map[string]any {
				return annotate(annotation.DefaultKey, fmt.Sprintf("mydata=%s/instant/%d", a.bare(), i))
			})
			a.each(ctx, 200, func(i int) map[string]any { return annotate(annotation.DefaultKey, "=") })
		}},
		{"suspends and resumes 200 objects", func(ctx context.Context, a *attacker) {
			a.create(ctx, 200, func(i int) []world.Trait {
				return []world.Trait{a.asking("changing", i), world.Annotated(refreshKey, refresh)}
			})
			for _, value := range []string{"true", "false", "true"} {
				a.each(ctx, 200, func(i int) map[string]any { return annotate(suspendKey, value) })
			}
		}},
		{"follows 100 endless bodies and redirect loops", func(ctx context.Context, a *attacker) {
			a.create(ctx, 100, func(i int) []world.Trait { return []world.Trait{a.asking([]string{"endless", "loop"}[i%2], i)} })
		}},
		{"overwrites 100 keys by hand again and again", func(ctx context.Context, a *attacker) {
			a.create(ctx, 100, func(i int) []world.Trait { return []world.Trait{a.asking("instant", i)} })
			for range 4 {
				a.each(ctx, 100, func(i int) map[string]any {
					return map[string]any{"data": map[string]any{"mydata": fmt.Sprint("mine ", time.Now())}}
				})
			}
		}},
	}
}

// bare is the host's address without a scheme.
func (a *attacker) bare() string { return "http://" + a.host.Address() }

// asking asks for page i of a kind.
func (a *attacker) asking(kind string, i int) world.Trait {
	return world.Asking(fmt.Sprintf("mydata=%s/%s/%d", a.bare(), kind, i))
}

// forged is a status with n entries.
func forged(n int, entry map[string]any) string {
	if entry == nil {
		entry = map[string]any{}
	}
	entries := map[string]any{}
	for i := range n {
		entries[fmt.Sprintf("k%04x", i)] = entry
	}
	text, err := json.Marshal(entries)
	Expect(err).NotTo(HaveOccurred())
	return string(text)
}

// annotate is a merge patch that sets an annotation.
func annotate(key, value string) map[string]any {
	return map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}}
}

// workers is the number of concurrent requests of the attacker.
const workers = 8

// each merges a patch into objects, as many at a time as workers.
func (a *attacker) each(ctx context.Context, n int, patch func(i int) map[string]any) {
	GinkgoHelper()
	a.parallel(n, func(i int) error {
		body, err := json.Marshal(patch(i))
		if err != nil {
			return err
		}
		_, err = a.Cluster.Client.CoreV1().ConfigMaps(a.Namespace).
			Patch(ctx, name("hostile", i), types.MergePatchType, body, metav1.PatchOptions{FieldManager: "hostile"})
		return err
	})
}

// create creates n objects.
func (a *attacker) create(ctx context.Context, n int, traits func(i int) []world.Trait, prefix ...string) {
	GinkgoHelper()
	a.parallel(n, func(i int) error {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name(append(prefix, "hostile")[0], i)}}
		for _, trait := range traits(i) {
			trait(object)
		}
		_, err := a.Cluster.Client.CoreV1().ConfigMaps(a.Namespace).Create(ctx, object, metav1.CreateOptions{FieldManager: "hostile"})
		return err
	})
}

func name(prefix string, i int) string { return fmt.Sprintf("%s-%d", prefix, i) }

// clear deletes everything.
func (a *attacker) clear(ctx context.Context) {
	GinkgoHelper()
	list, err := a.Cluster.Client.CoreV1().ConfigMaps(a.Namespace).List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	a.parallel(len(list.Items), func(i int) error {
		a.History.DeletedBySpec(list.Items[i].UID)
		err := a.Cluster.Client.CoreV1().ConfigMaps(a.Namespace).Delete(ctx, list.Items[i].Name, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// parallel calls do for each number below n.
func (a *attacker) parallel(n int, do func(i int) error) {
	GinkgoHelper()
	var group sync.WaitGroup
	errs := make([]error, n)
	for first := range workers {
		group.Go(func() {
			for i := first; i < n; i += workers {
				errs[i] = do(i)
			}
		})
	}
	group.Wait()
	for _, err := range errs {
		Expect(err).NotTo(HaveOccurred())
	}
}
