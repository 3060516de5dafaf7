// Package hostile is a tenant who misuses everything that a tenant may touch.
package hostile

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
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
	expectKey  = "x-kv8s.io/curl-expect"
	nowKey     = "x-kv8s.io/curl-now"
	suspendKey = "x-kv8s.io/curl-suspend"

	// Refresh is the minimum interval by default.
	Refresh = "10s"
)

// Tenant may only edit ConfigMaps in one namespace, and misuses that.
type Tenant struct {
	*world.World
	// Scale divides the number of objects of each attack (0 means 1).
	Scale int

	host *origin.Server
}

// New returns a hostile tenant in the namespace of a world, with a web server of its own.
func New(w *world.World, scale int) *Tenant {
	GinkgoHelper()
	a := &Tenant{World: w, Scale: scale, host: startHost()}
	DeferCleanup(a.host.Close)
	DeferCleanup(func(ctx SpecContext) { // the tenant's own writes are no promises
		w.EventuallyCaughtUp(ctx)
		w.History.AllBySpec()
	})
	return a
}

// Attack is one way to misuse ConfigMaps. It starts, and continues by itself.
type Attack struct {
	// Name completes the sentence "a tenant …".
	Name string
	// Run starts it.
	Run func(ctx context.Context, a *Tenant)
}

// Attacks returns all attacks.
func Attacks() []Attack { return slices.Concat(forgeries(), failures(), loads(), repetitions()) }

// forgeries are statuses, reasons and names that a user makes up, and edits in a row.
func forgeries() []Attack {
	return []Attack{
		{"sets curl-now on 300 keys of a slow host", func(ctx context.Context, a *Tenant) {
			a.create(ctx, 300, func(i int) []world.Trait {
				return []world.Trait{a.asking("slow", i), world.Annotated(nowKey, "1")}
			})
			a.each(ctx, 300, func(int) map[string]any { return annotate(nowKey, "2") })
		}},
		{"writes ten statuses of 220 KiB", func(ctx context.Context, a *Tenant) {
			a.create(ctx, 10, func(int) []world.Trait {
				return []world.Trait{world.Annotated(annotation.StatusKey, forged(20_000, nil))}
			})
		}},
		{"claims 1,300 written keys that nobody asks for", func(ctx context.Context, a *Tenant) {
			entry := map[string]any{"sha256": strings.Repeat("0", 64)}
			a.create(ctx, 10, func(int) []world.Trait {
				return []world.Trait{world.Annotated(annotation.StatusKey, forged(130, entry))}
			})
		}},
		{"makes up a reason for each of 500 failures", func(ctx context.Context, a *Tenant) {
			a.create(ctx, 500, func(i int) []world.Trait {
				entry := map[string]any{"error": fmt.Sprintf("Reason%d", i), "since": "2026-01-02T03:04:05Z"}
				return []world.Trait{a.asking("missing", i), world.Annotated(annotation.StatusKey, forged(1, entry))}
			})
		}},
		{"has 1,024 keys with the longest names", func(ctx context.Context, a *Tenant) {
			a.create(ctx, 16, func(int) []world.Trait {
				var pairs []string
				for k := range 64 {
					pairs = append(pairs, fmt.Sprintf("%s%02d=%s/missing/%d", strings.Repeat("k.", 110), k, a.bare(), k))
				}
				return []world.Trait{world.Asking(strings.Join(pairs, " "))}
			}, strings.Repeat("n.", 110)+"n")
		}},
		{"edits 100 keys of a slow host again and again", func(ctx context.Context, a *Tenant) {
			a.create(ctx, 100, func(i int) []world.Trait { return []world.Trait{a.asking("slow", i)} })
			for edit := range 4 {
				a.each(ctx, 100, func(i int) map[string]any {
					return annotate(annotation.DefaultKey, fmt.Sprintf("mydata=%s/slow/%d-%d", a.bare(), i, edit))
				})
			}
		}},
		{"asks for one slow URL in 200 objects", func(ctx context.Context, a *Tenant) {
			a.create(ctx, 200, func(int) []world.Trait { return []world.Trait{a.asking("slow", 0)} })
		}},
	}
}

// failures are hosts and objects that let each fetch or write fail.
func failures() []Attack {
	return []Attack{
		{"refreshes 200 keys of a flapping host", func(ctx context.Context, a *Tenant) {
			a.create(ctx, 200, func(i int) []world.Trait {
				return []world.Trait{a.asking("flapping", i), world.Annotated(refreshKey, Refresh)}
			})
		}},
		{"asks for two bodies that do not fit into one object, 10 times", func(ctx context.Context, a *Tenant) {
			a.create(ctx, 10, func(i int) []world.Trait {
				return []world.Trait{
					world.Asking(fmt.Sprintf("a=%[1]s/large/%[2]d b=%[1]s/large/b%[2]d", a.bare(), i)),
					world.Annotated(refreshKey, Refresh),
				}
			})
		}},
		{"deletes and creates 100 objects again", func(ctx context.Context, a *Tenant) {
			for range 3 {
				a.create(ctx, 100, func(i int) []world.Trait { return []world.Trait{a.asking("instant", i)} })
				a.Clear(ctx)
			}
		}},
		{"has 500 keys that fail with 404", func(ctx context.Context, a *Tenant) {
			a.create(ctx, 500, func(i int) []world.Trait {
				return []world.Trait{a.asking("missing", i), world.Annotated(refreshKey, Refresh)}
			})
		}},
		{"has 300 keys of a host that hangs", func(ctx context.Context, a *Tenant) {
			a.create(ctx, 300, func(i int) []world.Trait { return []world.Trait{a.asking("hanging", i)} })
		}},
		{"has 100 keys of a host that asks for an hour of pause", func(ctx context.Context, a *Tenant) {
			a.create(ctx, 100, func(i int) []world.Trait { return []world.Trait{a.asking("busy", i)} })
		}},
		{"has 200 immutable objects", func(ctx context.Context, a *Tenant) {
			a.create(ctx, 200, func(i int) []world.Trait { return []world.Trait{a.asking("instant", i), world.Immutable()} })
		}},
	}
}

// loads ask for much.
func loads() []Attack {
	return []Attack{
		{"asks for 500 keys that exist", func(ctx context.Context, a *Tenant) {
			a.create(ctx, 500, func(i int) []world.Trait {
				return []world.Trait{a.asking("instant", i), world.Holding("mydata", "mine")}
			})
		}},
		{"refreshes 20 large bodies that change", func(ctx context.Context, a *Tenant) {
			a.create(ctx, 20, func(i int) []world.Trait {
				return []world.Trait{a.asking("large", i), world.Annotated(refreshKey, Refresh)}
			})
		}},
		{"refreshes 1,000 keys", func(ctx context.Context, a *Tenant) { a.refreshed(ctx, 250, 4) }},
		{"refreshes 20,000 keys of an instant host", func(ctx context.Context, a *Tenant) { a.refreshed(ctx, 400, 50) }},
		{"has 500 keys with rules that take too long, and sets curl-now on them", func(ctx context.Context, a *Tenant) {
			ten := strings.Repeat("[0,0,0,0,0,0,0,0,0,0].all(x,", 8)
			rule := "mydata=" + ten + "!body.matches('(x+x+)+y{30}')" + strings.Repeat(")", 8) + "\n"
			a.create(ctx, 500, func(i int) []world.Trait {
				return []world.Trait{
					a.asking([]string{"instant", "letters"}[i%2], i), world.Annotated(expectKey, strings.Repeat(rule, 4)),
					world.Annotated(nowKey, "0"), world.Annotated(refreshKey, Refresh),
				}
			})
			for now := range 4 {
				a.each(ctx, 500, func(int) map[string]any { return annotate(nowKey, fmt.Sprint(now+1)) })
			}
		}},
	}
}

// repetitions do the same again and again.
func repetitions() []Attack {
	return []Attack{
		{"breaks and corrects 200 annotations", func(ctx context.Context, a *Tenant) {
			a.create(ctx, 200, func(int) []world.Trait { return []world.Trait{world.Asking("not a pair")} })
			a.each(ctx, 200, func(i int) map[string]any {
				return annotate(annotation.DefaultKey, fmt.Sprintf("mydata=%s/instant/%d", a.bare(), i))
			})
			a.each(ctx, 200, func(int) map[string]any { return annotate(annotation.DefaultKey, "=") })
		}},
		{"suspends and resumes 200 objects", func(ctx context.Context, a *Tenant) {
			a.create(ctx, 200, func(i int) []world.Trait {
				return []world.Trait{a.asking("changing", i), world.Annotated(refreshKey, Refresh)}
			})
			for _, value := range []string{"true", "false", "true"} {
				a.each(ctx, 200, func(int) map[string]any { return annotate(suspendKey, value) })
			}
		}},
		{"follows 100 endless bodies and redirect loops", func(ctx context.Context, a *Tenant) {
			a.create(ctx, 100, func(i int) []world.Trait { return []world.Trait{a.asking([]string{"endless", "loop"}[i%2], i)} })
		}},
		{"overwrites 100 keys by hand again and again", func(ctx context.Context, a *Tenant) {
			a.create(ctx, 100, func(i int) []world.Trait { return []world.Trait{a.asking("instant", i)} })
			for range 4 {
				a.each(ctx, 100, func(int) map[string]any {
					return map[string]any{"data": map[string]any{"mydata": fmt.Sprint("mine ", time.Now())}}
				})
			}
		}},
	}
}

// bare is the host's address without a scheme.
func (a *Tenant) bare() string { return "http://" + a.host.Address() }

// asking asks for page i of a kind.
func (a *Tenant) asking(kind string, i int) world.Trait {
	return world.Asking(fmt.Sprintf("mydata=%s/%s/%d", a.bare(), kind, i))
}

// refreshed creates n objects with some keys of an instant host each, which are refreshed.
func (a *Tenant) refreshed(ctx context.Context, n, keys int) {
	GinkgoHelper()
	a.create(ctx, n, func(i int) []world.Trait {
		var pairs []string
		for k := range keys {
			pairs = append(pairs, fmt.Sprintf("key%d=%s/instant/%d", k, a.bare(), keys*i+k))
		}
		return []world.Trait{world.Asking(strings.Join(pairs, " ")), world.Annotated(refreshKey, Refresh)}
	})
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
func (a *Tenant) each(ctx context.Context, n int, patch func(i int) map[string]any) {
	GinkgoHelper()
	a.parallel(a.scaled(n), func(i int) error {
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
func (a *Tenant) create(ctx context.Context, n int, traits func(i int) []world.Trait, prefix ...string) {
	GinkgoHelper()
	a.parallel(a.scaled(n), func(i int) error {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name(append(prefix, "hostile")[0], i)}}
		for _, trait := range traits(i) {
			trait(object)
		}
		_, err := a.Cluster.Client.CoreV1().ConfigMaps(a.Namespace).
			Create(ctx, object, metav1.CreateOptions{FieldManager: "hostile"})
		return err
	})
}

func name(prefix string, i int) string { return fmt.Sprintf("%s-%d", prefix, i) }

// Clear deletes everything.
func (a *Tenant) Clear(ctx context.Context) {
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
func (a *Tenant) parallel(n int, do func(i int) error) {
	GinkgoHelper()
	var group errgroup.Group
	group.SetLimit(workers)
	for i := range n {
		group.Go(func() error { return do(i) })
	}
	Expect(group.Wait()).To(Succeed())
}

// scaled divides a number of objects.
func (a *Tenant) scaled(n int) int { return max(1, n/max(1, a.Scale)) }
