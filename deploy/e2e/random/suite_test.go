// Package random runs rounds of random edits, faults and repairs, and checks the promises after each round.
// SEED selects the steps, and ROUNDS is the number of rounds. A broken promise prints the SEED that starts with
// its round.
package random_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/hostile"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/promise"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
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
	world.RunWithin(t, "Random", startLimit+time.Duration(world.Number("ROUNDS", usualRounds))*roundLimit)
}

var env *world.Environment

var _ = BeforeSuite(func() { env = world.Open() })

var _ = Describe("A random sequence of faults", func() {
	It("leaves each key up to date once it ends, and does not stop another tenant", func(ctx SpecContext) {
		seed := world.Number("SEED", usualSeed)
		rounds := world.Number("ROUNDS", usualRounds)
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
		s.rights.In(ctx, tenant.Namespace, world.RulesOf(world.Writer)...)
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
