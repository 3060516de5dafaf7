// Package random runs rounds of random edits, failures and repairs, and checks the promises of the
// system after each round. SEED selects the steps and ROUNDS their number. A failed round prints
// the SEED that starts with it.
package random_test

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
)

const (
	// usualRounds and usualSeed are the defaults for `make test`. Nightly runs use others.
	usualRounds = 50
	usualSeed   = 1
	// startLimit and roundLimit bound the suite. A round takes about two seconds on a quiet
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
func number(variable string, usual uint64) uint64 {
	text := os.Getenv(variable)
	if text == "" {
		return usual
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		panic(variable + " is not a number: " + text)
	}
	return n
}

// chance returns the random source of a round.
func chance(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

var _ = Describe("A random sequence of faults", func() {
	It("leaves each key up to date once it ends, and never delays another tenant's", func(ctx SpecContext) {
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
