// Package random runs rounds of random edits, faults and repairs, and checks the promises after each round.
// SEED selects the steps, and ROUNDS is the number of rounds. A broken promise prints the SEED that starts with
// its round.
package random_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/hostile"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/promise"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

const (
	// usualRounds and usualSeed are the defaults of `make test`.
	usualRounds = "20"
	usualSeed   = "1"
	// startLimit and roundLimit limit the duration of the suite. A round takes about two seconds on a quiet
	// machine.
	startLimit = 5 * time.Minute
	roundLimit = 30 * time.Second
)

func TestRandom(t *testing.T) {
	world.RunWithin(t, "Random", startLimit+time.Duration(number("ROUNDS", usualRounds))*roundLimit)
}

var env *world.Environment

var _ = BeforeSuite(func() { env = world.Open() })

// number returns the value of an environment variable, or a default.
func number(variable, usual string) uint64 {
	n, err := strconv.ParseUint(cmp.Or(os.Getenv(variable), usual), 10, 64)
	if err != nil {
		panic(variable + ": " + err.Error())
	}
	return n
}

var _ = Describe("A random sequence of faults", func() {
	It("leaves each key up to date once it ends, and does not stop another tenant", func(ctx SpecContext) {
		seed := number("SEED", usualSeed)
		rounds := number("ROUNDS", usualRounds)
		GinkgoWriter.Printf("SEED=%d ROUNDS=%d\n", seed, rounds)
		AddReportEntry("random", ReportEntryVisibilityFailureOrVerbose, "SEED="+strconv.FormatUint(seed, 10))
		s := begin(ctx)
		var broken []string
		for n := range rounds {
			broken = append(broken, s.round(ctx, seed+n)...)
			if len(broken) > maxBroken {
				break
			}
		}
		Expect(broken).To(BeEmpty(), "broken promises")
	})
})

const (
	// ackWait is the time after which the messages of a killed program are redelivered.
	ackWait = 2 * time.Second
	// maxBroken is the number of broken promises that a run tolerates before it stops.
	maxBroken = 10
	// historyBytes is the size of the history.
	historyBytes = 64 << 20
	// hostileScale divides the number of objects of an attack.
	hostileScale = 10
)

// system is the system that all rounds share.
type system struct {
	*world.World
	broker *world.Broker
	// rights is the writer's account, for the namespace where a step revokes its permissions.
	rights *world.Account
	wants  *published
	// hostile is a tenant who abuses ConfigMaps in some rounds.
	hostile *hostile.Tenant
}

// published has all messages, by subject. It is safe for concurrent use.
type published struct {
	mu  sync.Mutex
	all map[string][][]byte
}

func (p *published) add(m *nats.Msg) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all[m.Subject] = append(p.all[m.Subject], m.Data)
}

func (p *published) of(subject string) [][]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.all[subject])
}

// begin starts the services with short intervals. Steps happen in the namespace of the world. An ordinary and a
// hostile tenant share the installation.
func begin(ctx context.Context) *system {
	GinkgoHelper()
	s := &system{broker: world.RunBroker(), wants: &published{all: map[string][][]byte{}}}
	s.World = env.World(ctx, world.Options{
		Broker: s.broker.URL(), AckWait: ackWait, Tenants: 2, Kubeconfigs: env.Cluster.WriterAccount(&s.rights),
		Flags: map[string][]string{
			world.Watcher: {"--audit-interval=1s", "--coalesce=100ms"},
			world.Fetcher: {"--recheck=1s", "--retry-base=100ms", "--retry-max=500ms", "--max-retry-after=1s"},
		},
	})
	suitetest.Must(pipeline.Ensure(ctx, s.JetStream, pipeline.Topology{HistoryBytes: historyBytes, KeepExisting: true}))
	suitetest.Must(s.Conn.Subscribe("curl.want.>", s.wants.add))
	for _, tenant := range s.Tenants {
		s.rights.In(ctx, tenant.Namespace, world.WriterRules()...)
	}
	s.hostile = hostile.New(s.Tenants[1], hostileScale) //nolint:contextcheck // its cleanup has its own context
	return s
}

const (
	// minSteps and maxSteps limit the number of steps in a round.
	minSteps, maxSteps = 4, 12
	// maxPause is the maximum time between two steps.
	maxPause = 150 * time.Millisecond
	// healLimit is how long a key may take to be up to date once all obstacles are gone: several audits, on a
	// busy machine.
	healLimit = 50 * time.Second
	// apartLimit is how long a key of another tenant may take during the faults.
	apartLimit = 40 * time.Second
	// ordinaryObjects is the number of ConfigMaps at the start of a round.
	ordinaryObjects = 3
)

// round is a sequence of random steps. It owns all its ConfigMaps.
type round struct {
	*system
	seed    uint64
	rng     *rand.Rand
	objects []*object
	named   int
	// lifts remove the obstacles at the end.
	lifts []func(context.Context)
	done  []string
}

// round runs random steps and returns the broken promises.
func (s *system) round(ctx context.Context, seed uint64) []string {
	GinkgoHelper()
	began := time.Now()
	r := &round{system: s, seed: seed, rng: rand.New(rand.NewPCG(seed, 0))}
	for range ordinaryObjects {
		r.objects = append(r.objects, r.newObject(ctx))
	}
	steps := r.choose()
	for _, step := range steps {
		if step.prepare != nil {
			step.prepare(ctx, r)
		}
	}
	for _, step := range steps {
		r.pause(ctx)
		r.done = append(r.done, step.name)
		step.do(ctx, r)
	}
	broken := r.apart(ctx)
	for _, lift := range r.lifts {
		lift(ctx)
	}
	broken = append(broken, r.heals(ctx)...)
	r.clear(ctx)
	GinkgoWriter.Printf("SEED=%d %.1fs %s\n", seed, time.Since(began).Seconds(), strings.Join(r.done, ", "))
	for i := range broken {
		broken[i] += fmt.Sprintf(" (SEED=%d ROUNDS=1; %s)", seed, strings.Join(r.done, ", "))
		GinkgoWriter.Println(broken[i])
	}
	return broken
}

func (r *round) choose() []step {
	var chosen []step
	all := steps()
	for range minSteps + r.rng.IntN(maxSteps-minSteps+1) {
		one := all[r.rng.IntN(len(all))]
		if !one.once || !slices.ContainsFunc(chosen, func(s step) bool { return s.name == one.name }) {
			chosen = append(chosen, one)
		}
	}
	return chosen
}

// pause waits for a random time.
func (r *round) pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Duration(r.rng.Int64N(int64(maxPause)))):
	}
}

// apart creates a ConfigMap of another tenant while all obstacles exist, and returns the promises broken for
// it.
func (r *round) apart(ctx context.Context) []string {
	GinkgoHelper()
	tenant := r.Tenants[0]
	page := tenant.Origin.Page(fmt.Sprintf("/%d", r.seed)).Says("ordinary")
	cm := tenant.Create(ctx, r.name(), world.Asking("mydata="+page.URL()))
	defer cm.Delete(ctx)
	return await(ctx, apartLimit, func() []string {
		return r.Checker().Right(promise.Apart, tenant.History.Latest(cm.Name))
	})
}

// heals waits until all objects are up to date, and returns the promises broken for the others.
func (r *round) heals(ctx context.Context) []string {
	return await(ctx, healLimit, func() []string {
		var wrong []string
		for _, o := range r.objects {
			if object := r.History.Latest(o.Name); object != nil {
				wrong = append(wrong, r.Checker().Right(promise.Heals, object)...)
			}
		}
		return wrong
	})
}

// await waits until look finds nothing wrong, and returns its last result.
func await(ctx context.Context, limit time.Duration, look func() []string) (wrong []string) {
	_ = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, limit, true, func(context.Context) (bool, error) {
		wrong = look()
		return len(wrong) == 0, nil
	}) // the last result is returned after the limit too
	return wrong
}

// clear deletes the objects of the round.
func (r *round) clear(ctx context.Context) {
	GinkgoHelper()
	for _, o := range r.objects {
		o.Delete(ctx)
	}
	for _, home := range []*world.World{r.World, r.Tenants[0]} {
		list := suitetest.Must(r.Cluster.Client.CoreV1().ConfigMaps(home.Namespace).List(ctx, metav1.ListOptions{}))
		Expect(list.Items).To(BeEmpty(), "ConfigMaps that the round did not make")
	}
}

func (r *round) name() string {
	r.named++
	return fmt.Sprintf("r%d-%d", r.seed, r.named)
}

const (
	// usualObjects and usualTurns are the defaults of PAIR_OBJECTS and PAIR_ROUNDS.
	usualObjects, usualTurns = "40", "6"
	// turnLimit is how long the installations that run may take to follow all edits of a round.
	turnLimit = 60 * time.Second
)

// side is one of two installations.
type side struct {
	// name begins its keys and bodies.
	name, annotation string
	services         []*world.Service
	down             bool
}

// shared is the key that both installations may be asked for.
const shared = "both"

// pair is two installations with the same objects.
type pair struct {
	*world.World
	rng   *rand.Rand
	sides []*side
	// objects, their pages by side and key, and the number of versions that were checked.
	objects []*world.ConfigMap
	pages   []map[string]map[string]*origin.Page
	checked map[string]int
	broken  []*origin.Page
	named   int
}

// aside is the label with which the second installation ignores an object.
const aside = "aside"

var _ = Describe("Two installations that read different annotations of the same objects", func() {
	It("never remove or overwrite a value of the other one", func(ctx SpecContext) {
		seed := number("SEED", usualSeed)
		AddReportEntry("random", ReportEntryVisibilityFailureOrVerbose, fmt.Sprintf("SEED=%d", seed))
		p := &pair{rng: rand.New(rand.NewPCG(seed, 1)), checked: map[string]int{}}
		options := world.Audited(world.Options{})
		// A round removes more keys than users do at once.
		options.Flags[world.Watcher] = append(options.Flags[world.Watcher], "--max-removals=0")
		p.World = env.World(ctx, options)
		DeferCleanup(p.History.AllBySpec)
		first := &side{name: "A", annotation: annotation.DefaultKey}
		for _, name := range world.Services() {
			first.services = append(first.services, p.Service(name))
		}
		const other = "other.example/curl"
		second := p.Beside(ctx, other, "--selector="+aside+"!=yes")
		p.sides = []*side{first, {name: "B", annotation: other, services: second}}
		for i := range number("PAIR_OBJECTS", usualObjects) {
			p.objects = append(p.objects, p.Create(ctx, fmt.Sprintf("pair-%d", i)))
			p.pages = append(p.pages, map[string]map[string]*origin.Page{"A": {}, "B": {}})
		}
		for range number("PAIR_ROUNDS", usualTurns) {
			p.turn(ctx)
			Expect(p.breaches()).To(BeEmpty(), "SEED=%d", seed)
		}
		p.heal(ctx)
		Expect(p.breaches()).To(BeEmpty(), "SEED=%d", seed)
	})
})

// turn stops or starts an installation, and edits a quarter of the objects.
func (p *pair) turn(ctx context.Context) {
	GinkgoHelper()
	if s := p.sides[p.rng.IntN(2)]; s.down || !p.sides[0].down && !p.sides[1].down && p.rng.IntN(2) == 0 {
		p.toggle(ctx, s)
	}
	for range len(p.objects) / 4 {
		i := p.rng.IntN(len(p.objects))
		switch p.rng.IntN(6) {
		case 0:
			label := map[bool]string{true: "yes"}[p.objects[i].Get(ctx).Labels[aside] == ""]
			p.objects[i].Label(ctx, aside, label)
		case 1:
			for _, page := range p.pages[i]["A"] {
				p.broken = append(p.broken, page.Fails(http.StatusServiceUnavailable))
			}
		default:
			p.ask(ctx, i, p.sides[p.rng.IntN(2)])
		}
	}
	p.follow(ctx)
}

// ask sets or removes the annotation of one installation.
func (p *pair) ask(ctx context.Context, i int, s *side) {
	GinkgoHelper()
	pages := map[string]*origin.Page{}
	var pairs []string
	for _, key := range []string{s.name + "0", s.name + "1", shared} {
		if p.rng.IntN(2) == 0 {
			p.named++
			pages[key] = p.Origin.Page(fmt.Sprintf("/%s/%d", s.name, p.named)).Says(fmt.Sprintf("%s %d", s.name, p.named))
			pairs = append(pairs, key+"="+pages[key].URL())
		}
	}
	p.pages[i][s.name] = pages
	if len(pairs) == 0 {
		p.objects[i].Unannotate(ctx, s.annotation)
		return
	}
	p.objects[i].Annotate(ctx, s.annotation, strings.Join(pairs, " "))
}

func (p *pair) toggle(ctx context.Context, s *side) {
	GinkgoHelper()
	for _, service := range s.services {
		if s.down {
			service.Restart(ctx)
		} else {
			service.ShouldStop(ctx)
		}
	}
	s.down = !s.down
}

// heal starts everything, and waits until all objects are up to date.
func (p *pair) heal(ctx context.Context) {
	GinkgoHelper()
	for _, s := range p.sides {
		if s.down {
			p.toggle(ctx, s)
		}
	}
	for i, page := range p.broken {
		page.Says(fmt.Sprintf("A again %d", i))
	}
	p.broken = nil
	for _, o := range p.objects {
		o.Label(ctx, aside, "")
	}
	p.follow(ctx)
}

// follow waits until the keys of each running installation are as asked, except those whose page fails.
func (p *pair) follow(ctx context.Context) {
	GinkgoHelper()
	Eventually(ctx, func() (wrong []string) {
		for i, cm := range p.objects {
			object := p.History.Latest(cm.Name)
			for _, s := range p.sides {
				if !s.down && (s.name == "A" || object.Labels[aside] == "") {
					wrong = append(wrong, p.wrong(object, s, p.pages[i])...)
				}
			}
		}
		return wrong
	}).WithTimeout(turnLimit).WithPolling(100*time.Millisecond).Should(BeEmpty(), "keys of running installations")
}

func (p *pair) wrong(object *corev1.ConfigMap, s *side, pages map[string]map[string]*origin.Page) (wrong []string) {
	for _, key := range []string{s.name + "0", s.name + "1", shared} {
		page, value := pages[s.name][key], object.Data[key]
		other := p.sides[0]
		if s == other {
			other = p.sides[1]
		}
		_, contested := pages[other.name][key]
		// Its entry stays as long as its annotation is there and it does not look.
		left := key == shared && len(pages[other.name]) > 0 && (other.down || object.Labels[aside] != "")
		switch {
		case contested, left, slices.Contains(p.broken, page):
		case page == nil && key != shared && value != "", page != nil && !p.served(page, value):
			wrong = append(wrong, object.Name+"/"+key+"="+value)
		}
	}
	return wrong
}

// served reports whether a page ever had this body.
func (p *pair) served(page *origin.Page, body string) bool {
	return p.Origin.Served(page.URL(), []byte(body))
}

// breaches returns the writes of the systems since the last call that removed or changed a value of an installation
// that was asked for it, or that did not run, or that ignored the object.
func (p *pair) breaches() (found []string) {
	for _, life := range p.History.Lives() {
		for n := max(1, p.checked[life.Name]); n < len(life.Versions); n++ {
			before, after := life.Versions[n-1].Object, life.Versions[n].Object
			for _, key := range slices.Sorted(maps.Keys(before.Data)) {
				was, is := before.Data[key], after.Data[key]
				s := p.sides[strings.Index("AB", was[:1])]
				_, present := before.Annotations[s.annotation]
				idle := s.down || s.name == "B" && before.Labels[aside] != ""
				asked := requested(before, s.annotation)[key]
				switch {
				case life.Versions[n].BySpec, was == is:
				case asked && (is == "" || is[:1] != s.name), idle && (present || key != shared):
					found = append(found, fmt.Sprintf("%s version %d: key %s of %s became %q, was %q", life.Name, n, key, s.name, is,
						was))
				}
			}
		}
		p.checked[life.Name] = len(life.Versions)
	}
	return found
}

// requested returns the keys in an annotation of an object.
func requested(object *corev1.ConfigMap, name string) map[string]bool {
	keys := map[string]bool{}
	for pair := range strings.FieldsSeq(object.Annotations[name]) {
		key, _, _ := strings.Cut(pair, "=")
		keys[key] = true
	}
	return keys
}
