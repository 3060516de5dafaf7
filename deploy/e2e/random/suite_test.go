// Package random runs rounds of random edits, faults and repairs, and checks the promises after each round.
// SEED selects the steps, and ROUNDS is the number of rounds. A broken promise prints the SEED that starts with
// its round.
package random_test

import (
	"cmp"
	"context"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/hostile"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

const (
	// usualRounds and usualSeed are the defaults of `make test`.
	usualRounds = "50"
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
	suitetest.Must(s.Conn.Subscribe("curl.want.>", s.wants.add))
	for _, tenant := range s.Tenants {
		s.rights.In(ctx, tenant.Namespace, world.WriterRules()...)
	}
	s.hostile = hostile.New(s.Tenants[1], hostileScale) //nolint:contextcheck // its cleanup has its own context
	return s
}
