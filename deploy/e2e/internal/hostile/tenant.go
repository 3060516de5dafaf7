// Package hostile simulates a malicious tenant.
package hostile

import (
	"cmp"
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
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/annotation"
)

const (
	refreshKey = "x-kv8s.io/curl-refresh"
	expectKey  = "x-kv8s.io/curl-expect"
	selectKey  = "x-kv8s.io/curl-select"
	nowKey     = "x-kv8s.io/curl-now"
	suspendKey = "x-kv8s.io/curl-suspend"

	// Refresh is the default minimum of the refresh interval.
	Refresh = "10s"
)

// Tenant may only edit ConfigMaps in one namespace, and abuses that.
type Tenant struct {
	*world.World
	// Scale divides the number of objects of each attack (0 means 1).
	Scale int

	host *origin.Server
}

// New returns a hostile tenant in the namespace of a world, with its own web server.
func New(w *world.World, scale int) *Tenant {
	GinkgoHelper()
	a := &Tenant{World: w, Scale: scale, host: startHost()}
	DeferCleanup(a.host.Close)
	DeferCleanup(func(ctx SpecContext) { // the promises do not cover the tenant's objects
		w.EventuallyCaughtUp(ctx)
		w.History.AllBySpec()
	})
	return a
}

// Attack is one way to abuse ConfigMaps. Run starts it, and the system keeps it going.
type Attack struct {
	// Name completes the sentence "a tenant …".
	Name string

	// objects is the number of ConfigMaps. Their names start with prefix (empty means hostile).
	objects int
	prefix  string
	// traits returns the traits of ConfigMap i.
	traits func(a *Tenant, i int) []world.Trait
	// edits is the number of patches per ConfigMap, and edit returns patch n of ConfigMap i.
	edits int
	edit  func(a *Tenant, i, n int) map[string]any
	// again is how often all ConfigMaps are deleted and re-created.
	again int
	// run replaces all of this.
	run func(ctx context.Context, a *Tenant)
}

// Run starts the attack.
func (x Attack) Run(ctx context.Context, a *Tenant) {
	GinkgoHelper()
	if x.run != nil {
		x.run(ctx, a)
		return
	}
	a.create(ctx, x)
	for range x.again {
		a.Clear(ctx)
		a.create(ctx, x)
	}
	for n := range x.edits {
		a.merge(ctx, x, n)
	}
}

// Attacks returns all attacks.
func Attacks() []Attack {
	return slices.Concat(forgeries(), failures(), loads(), rules(), repetitions())
}

// forgeries are attacks with forged statuses, long names and repeated edits.
func forgeries() []Attack {
	return []Attack{
		{
			Name: "sets curl-now on 300 keys of a slow host", objects: 300,
			traits: asking("slow", world.Annotated(nowKey, "1")),
			edits:  1, edit: func(*Tenant, int, int) map[string]any { return annotate(nowKey, "2") },
		},
		{Name: "writes ten statuses of 220 KiB", objects: 10, traits: func(*Tenant, int) []world.Trait {
			return []world.Trait{world.Annotated(annotation.StatusKey, forged(20_000, nil))}
		}},
		{
			Name: "claims 1,300 written keys that no annotation requests", objects: 10,
			traits: func(*Tenant, int) []world.Trait {
				entry := map[string]any{"sha256": strings.Repeat("0", 64)}
				return []world.Trait{world.Annotated(annotation.StatusKey, forged(130, entry))}
			},
		},
		{
			Name: "mistypes 9,500 annotations and 900 labels in each of 40 objects", objects: 40,
			traits: func(*Tenant, int) []world.Trait {
				return []world.Trait{func(o *corev1.ConfigMap) {
					o.Annotations, o.Labels = names("x-kv8s.io/curl-me-%d", 9500), names("x-kv8s.io/curl-me-tha%d", 900)
				}}
			},
		},
		{
			Name: "mistypes 1,300 rules in each of 40 objects", objects: 40,
			traits: func(*Tenant, int) []world.Trait {
				return []world.Trait{
					world.Asking("mydata=https://a.example"), world.Annotated(expectKey, strings.Repeat("k=((\n", 1300)),
				}
			},
		},
		{
			Name: "makes up a reason for each of 500 failures", objects: 500,
			traits: func(a *Tenant, i int) []world.Trait {
				entry := map[string]any{"error": fmt.Sprintf("Reason%d", i), "since": "2026-01-02T03:04:05Z"}
				return asking("missing", world.Annotated(annotation.StatusKey, forged(1, entry)))(a, i)
			},
		},
		{
			Name: "has 1,024 keys with the longest names", objects: 16, prefix: strings.Repeat("n.", 110) + "n",
			traits: func(a *Tenant, _ int) []world.Trait {
				var pairs []string
				for k := range 64 {
					pairs = append(pairs, fmt.Sprintf("%s%02d=%s/missing/%d", strings.Repeat("k.", 110), k, a.site(), k))
				}
				return []world.Trait{world.Asking(strings.Join(pairs, " "))}
			},
		},
		{
			Name: "edits 100 keys of a slow host again and again", objects: 100, traits: asking("slow"),
			edits: 4, edit: func(a *Tenant, i, n int) map[string]any {
				return annotate(annotation.DefaultKey, fmt.Sprintf("mydata=%s/slow/%d-%d", a.site(), i, n))
			},
		},
		{Name: "requests one slow URL in 200 objects", objects: 200, traits: func(a *Tenant, _ int) []world.Trait {
			return asking("slow")(a, 0)
		}},
	}
}

// failures are attacks whose fetches or writes fail.
func failures() []Attack {
	return []Attack{
		{Name: "refreshes 200 keys of a flapping host", objects: 200, traits: asking("flapping", refreshed())},
		{
			Name: "requests two bodies that do not fit into one object, in 10 objects", objects: 10,
			traits: func(a *Tenant, i int) []world.Trait {
				pairs := fmt.Sprintf("a=%[1]s/large/%[2]d b=%[1]s/large/b%[2]d", a.site(), i)
				return []world.Trait{world.Asking(pairs), refreshed()}
			},
		},
		{Name: "deletes and re-creates 100 objects", objects: 100, traits: asking("instant"), again: 3},
		{Name: "has 500 keys that fail with 404", objects: 500, traits: asking("missing", refreshed())},
		{Name: "has 300 keys of a host that hangs", objects: 300, traits: asking("hanging")},
		{Name: "has 100 keys of a host with Retry-After: 3600", objects: 100, traits: asking("busy")},
		{Name: "has 200 immutable objects", objects: 200, traits: asking("instant", world.Immutable())},
	}
}

// loads are attacks with much work.
func loads() []Attack {
	return []Attack{
		{Name: "requests 500 keys that exist", objects: 500, traits: asking("instant", world.Holding("mydata", "mine"))},
		{Name: "refreshes 20 large bodies that change", objects: 20, traits: asking("large", refreshed())},
		{Name: "refreshes 1,000 keys", objects: 250, traits: instant(4)},
		{Name: "refreshes 20,000 keys of an instant host", objects: 400, traits: instant(50)},
		{
			Name: "has 500 keys with rules that take too long, and sets curl-now on them", objects: 500,
			traits: func(a *Tenant, i int) []world.Trait {
				ten := strings.Repeat("[0,0,0,0,0,0,0,0,0,0].all(x,", 8)
				rule := "mydata=" + ten + "!body.matches('(x+x+)+y{30}')" + strings.Repeat(")", 8) + "\n"
				return asking([]string{"instant", "letters"}[i%2], world.Annotated(expectKey, strings.Repeat(rule, 4)),
					world.Annotated(nowKey, "0"), refreshed())(a, i)
			},
			edits: 4, edit: func(_ *Tenant, _, n int) map[string]any { return annotate(nowKey, fmt.Sprint(n+1)) },
		},
	}
}

// rules are attacks on the CPU and memory that expressions take.
func rules() []Attack {
	or := func(part string) string { return strings.Repeat(part+"||", 1000/(len(part)+2)) + "true" }
	return []Attack{
		ruled("has rules that are slow to check", "instant", 20, slowToCheck),
		ruled("has rules that are as slow to check as allowed", "letters", 100, func(i int) string {
			return or("json in json") + fmt.Sprint("||heldSize==", i)
		}),
		ruled("has rules that compile a body", "pattern", 100, func(int) string { return or("''.matches(body)") }),
		ruled("has rules with large patterns", "letters", 100, func(i int) string {
			return fmt.Sprintf("body.matches('(a?%d){400}z')||''.matches('(%s){1000}')", i, strings.Repeat("a?", 450))
		}),
		ruled("has rules that convert large bodies", "letters", 100, func(i int) string {
			return or("duration(body)<duration(body)||size(body)<0") + fmt.Sprint("&&heldSize!=", i)
		}),
		ruled("has 1,200 large rules", "instant", 150, func(i int) string {
			return "heldSize!=" + fmt.Sprint(i) + "&&[" + strings.Repeat("1,", 480) + "1]!=[]"
		}),
	}
}

// slowToCheck returns an expression whose type is nested deeply.
func slowToCheck(i int) string {
	const depth = 78
	deep := strings.Repeat("[", depth) + "x" + strings.Repeat("]", depth)
	return fmt.Sprintf("[%d]", i) + strings.Repeat(".map(x,"+deep+")", 6) + "!=[]"
}

// SlowRules returns an attack whose evaluations take as long as possible.
func SlowRules() Attack { return rules()[4] }

// ruled has as many rules and selections in each object as fit, for pages of a kind. Each rule is different.
func ruled(name, kind string, objects int, rule func(i int) string) Attack {
	return Attack{
		Name: name, objects: objects,
		traits: func(a *Tenant, i int) []world.Trait {
			var expect, choose string
			for n := range 7 {
				expect += "mydata=" + rule(7*i+n) + "\n"
			}
			choose = "mydata=" + rule(7*i+7)
			return asking(kind, refreshed(), world.Annotated(expectKey, expect), world.Annotated(selectKey, choose))(a, i)
		},
		edits: 2, edit: func(_ *Tenant, _, n int) map[string]any { return annotate(nowKey, fmt.Sprint(n)) },
	}
}

// repetitions are attacks that repeat an edit or a request.
func repetitions() []Attack {
	return []Attack{
		{
			Name: "breaks and corrects 200 annotations", objects: 200,
			traits: func(*Tenant, int) []world.Trait { return []world.Trait{world.Asking("not a pair")} },
			edits:  2, edit: func(a *Tenant, i, n int) map[string]any {
				valid := fmt.Sprintf("mydata=%s/instant/%d", a.site(), i)
				return annotate(annotation.DefaultKey, []string{valid, "="}[n])
			},
		},
		{
			Name: "suspends and resumes 200 objects", objects: 200, traits: asking("changing", refreshed()),
			edits: 3, edit: func(_ *Tenant, _, n int) map[string]any {
				return annotate(suspendKey, []string{"true", "false", "true"}[n])
			},
		},
		{
			Name: "follows 100 endless bodies and redirect loops", objects: 100,
			traits: func(a *Tenant, i int) []world.Trait { return asking([]string{"endless", "loop"}[i%2])(a, i) },
		},
		{
			Name: "overwrites 100 keys by hand again and again", objects: 100, traits: asking("instant"),
			edits: 4, edit: func(*Tenant, int, int) map[string]any {
				return map[string]any{"data": map[string]any{"mydata": fmt.Sprint("mine ", time.Now())}}
			},
		},
	}
}

// site returns the URL of the host.
func (t *Tenant) site() string { return "http://" + t.host.Address() }

// asking returns the traits of object i: it requests page i of a kind, and has more traits.
func asking(kind string, more ...world.Trait) func(a *Tenant, i int) []world.Trait {
	return func(a *Tenant, i int) []world.Trait {
		return append([]world.Trait{world.Asking(fmt.Sprintf("mydata=%s/%s/%d", a.site(), kind, i))}, more...)
	}
}

// refreshed requests the minimum refresh interval.
func refreshed() world.Trait { return world.Annotated(refreshKey, Refresh) }

// instant requests several keys per object from an instant host, at the minimum refresh interval.
func instant(keys int) func(a *Tenant, i int) []world.Trait {
	return func(a *Tenant, i int) []world.Trait {
		var pairs []string
		for k := range keys {
			pairs = append(pairs, fmt.Sprintf("key%d=%s/instant/%d", k, a.site(), keys*i+k))
		}
		return []world.Trait{world.Asking(strings.Join(pairs, " ")), refreshed()}
	}
}

// names returns n annotations or labels without a value.
func names(format string, n int) map[string]string {
	all := map[string]string{}
	for i := range n {
		all[fmt.Sprintf(format, i)] = ""
	}
	return all
}

// forged returns a status with n entries.
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

// annotate returns a merge patch that sets an annotation.
func annotate(key, value string) map[string]any {
	return map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}}
}

// workers is the number of concurrent requests of the tenant.
const workers = 8

// merge applies patch n to each object of an attack.
func (t *Tenant) merge(ctx context.Context, x Attack, n int) {
	GinkgoHelper()
	t.parallel(t.scaled(x.objects), func(i int) error {
		body, err := json.Marshal(x.edit(t, i, n))
		if err != nil {
			return err
		}
		_, err = t.configMaps().
			Patch(ctx, x.name(i), types.MergePatchType, body, metav1.PatchOptions{FieldManager: "hostile"})
		return err
	})
}

// create creates the objects of an attack.
func (t *Tenant) create(ctx context.Context, x Attack) {
	GinkgoHelper()
	t.parallel(t.scaled(x.objects), func(i int) error {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: x.name(i)}}
		for _, trait := range x.traits(t, i) {
			trait(object)
		}
		_, err := t.configMaps().Create(ctx, object, metav1.CreateOptions{FieldManager: "hostile"})
		return err
	})
}

func (x Attack) name(i int) string { return fmt.Sprintf("%s-%d", cmp.Or(x.prefix, "hostile"), i) }

func (t *Tenant) configMaps() corev1client.ConfigMapInterface {
	return t.Cluster.Client.CoreV1().ConfigMaps(t.Namespace)
}

// Clear deletes all ConfigMaps, Secrets and Watchers in the tenant's namespace.
func (t *Tenant) Clear(ctx context.Context) {
	GinkgoHelper()
	t.clearKeeper(ctx)
	list, err := t.configMaps().List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	t.parallel(len(list.Items), func(i int) error {
		t.History.DeletedBySpec(list.Items[i].UID)
		err := t.configMaps().Delete(ctx, list.Items[i].Name, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// parallel calls do for each number below n.
func (t *Tenant) parallel(n int, do func(i int) error) {
	GinkgoHelper()
	var group errgroup.Group
	group.SetLimit(workers)
	for i := range n {
		group.Go(func() error { return do(i) })
	}
	Expect(group.Wait()).To(Succeed())
}

// scaled divides a number of objects by Scale.
func (t *Tenant) scaled(n int) int { return max(1, n/max(1, t.Scale)) }
