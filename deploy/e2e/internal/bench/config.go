package bench

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Bodies have room for a number that makes them different, and fit into a
// message of NATS as it is configured out of the box.
const (
	minSize = 32
	maxSize = 512 << 10
)

// Config is what to measure.
type Config struct {
	// N is the number of annotated ConfigMaps in a round.
	N int
	// Rounds is how often the pipeline is compared with the bare API server.
	Rounds int
	// Idle is the number of ConfigMaps that are annotated one after another on
	// the idle system; 0: none.
	Idle int
	// Foreign is the number of ConfigMaps of 4 KiB without an annotation that
	// the watcher has to live with; 0: none.
	Foreign int
	// Size of the data that each ConfigMap is filled with, in bytes.
	Size int
	// Shared lets all ConfigMaps ask for one URL.
	Shared bool
	// Scrape is how often the metrics of each service are read meanwhile; 0:
	// never.
	Scrape time.Duration
	// Unsigned leaves wants without signatures. With the services of a version that
	// knows none it shows what they cost.
	Unsigned bool
	// Profiles is the folder for profiles of all programs in each round, those of the
	// control plane during bare patches included; empty: none are taken.
	Profiles string
	// Prices measures what signatures, accounts and the policy of the writer cost,
	// and nothing else.
	Prices bool
	// Isolation measures how long an ordinary key waits beside hostile tenants,
	// and nothing else.
	Isolation bool
	// Parking measures how the slots of a host are used while many keys wait for
	// them, and nothing else.
	Parking bool
	// Overdue is the number of keys whose timers all come due while NATS is away;
	// nothing else is measured then. 0: none.
	Overdue int
	// Watchers is the number of Watchers beside which keeper's memory is measured;
	// nothing else is measured then. 0: none.
	Watchers int
	// Beside is the number of Watchers, and of ConfigMaps annotated by hand, beside which
	// rounds are compared; nothing else is measured then. 0: none.
	Beside int
	// Refresh is the number of keys that are refreshed every 10 s and do not change;
	// nothing else is measured then. 0: none.
	Refresh int
	// Replicas of the streams, and servers of the NATS, with which Refresh is measured: 1
	// or 3.
	Replicas int
	// Remembered is the number of objects of 128 keys that a writer writes to, to see
	// what it remembers of them; nothing else is measured then. 0: none.
	Remembered int
	// Tools is the number of keys that curlctl lists; nothing else is measured then.
	// 0: none.
	Tools int
	// Apart compares with the control plane on a processor of its own, beside all
	// programs on all of them. Prices are measured with it there alone.
	Apart bool
	// Scale are counts of ConfigMaps, separated by commas, each of which is measured
	// by one round, and nothing else. Empty: none.
	Scale string
	// Restart starts each program again beside the last count of Scale, too.
	Restart bool
	// FanOut measures how fetchers share the work, and nothing else.
	FanOut bool
	// Peers is the number of ConfigMaps that a plain controller and this one fill;
	// nothing else is measured then. 0: none.
	Peers int
	// Short measures a fiftieth of all.
	Short bool
	// Bin is the folder with the services.
	Bin string
	// Timeout for all.
	Timeout time.Duration

	// allocations are measured, too.
	allocations bool
}

// BindFlags adds the flags.
func (c *Config) BindFlags(fs *flag.FlagSet) {
	fs.IntVar(&c.N, "n", 2000, "annotated ConfigMaps in a round")
	fs.IntVar(&c.Rounds, "rounds", 3, "comparisons with the bare API server; the middle one counts")
	fs.IntVar(&c.Idle, "idle", 200, "ConfigMaps to annotate one after another on the idle system; 0: none")
	fs.IntVar(&c.Foreign, "foreign", 20000, "ConfigMaps of 4 KiB without annotation in the sight of the watcher; 0: none")
	fs.IntVar(&c.Size, "size", 256, "bytes of data for each ConfigMap")
	fs.BoolVar(&c.Shared, "shared", false, "let all ConfigMaps ask for one URL")
	fs.DurationVar(&c.Scrape, "scrape", 0, "how often the metrics of each service are read meanwhile, such as 1s; 0: never")
	fs.BoolVar(&c.Unsigned, "unsigned", false, "leave wants unsigned, as services do that know no signatures (-bin), to see what they cost")
	fs.StringVar(&c.Profiles, "profiles", "", "folder for profiles of all programs in each round, which then takes 60 s more; empty: none")
	fs.BoolVar(&c.Prices, "prices", false, "measure what signatures, accounts of NATS and the policy of the writer cost, in paired rounds, and nothing else; it needs $HELM")
	fs.BoolVar(&c.Isolation, "isolation", false, "measure how long an ordinary key waits beside hostile tenants, and nothing else")
	fs.BoolVar(&c.Parking, "parking", false, "measure how the slots of a host are used while 16,000 keys wait for them, and nothing else")
	fs.IntVar(&c.Overdue, "overdue", 0, "measure the memory of a NATS that was away while the timers of so many keys came due, and nothing else")
	fs.IntVar(&c.Watchers, "watchers", 0, "measure the memory of keeper beside so many Watchers, and nothing else")
	fs.IntVar(&c.Beside, "beside", 0, "compare rounds beside so many Watchers, beside as many annotated ConfigMaps, and alone")
	fs.IntVar(&c.Refresh, "refresh", 0, "measure what it costs to refresh so many keys every 10 s that do not change, and nothing else")
	fs.IntVar(&c.Replicas, "replicas", 1, "with -refresh: servers of NATS, and replicas of its streams: 1 or 3")
	fs.IntVar(&c.Remembered, "remembered", 0, "measure the memory of a writer that has written to so many objects of 128 keys, and nothing else; it remembers 4096")
	fs.IntVar(&c.Tools, "tools", 0, "measure how long curlctl takes to list so many keys, and nothing else")
	fs.BoolVar(&c.Apart, "apart", false, "compare with the bare API server with the control plane on a processor of its own, too; with -prices: measure them so")
	fs.StringVar(&c.Scale, "scale", "", "measure one round with each of these counts of ConfigMaps, such as 2000,10000,50000, and nothing else")
	fs.BoolVar(&c.Restart, "restart", false, "with -scale: measure how soon a want is served after each program was started again, too, beside the last count")
	fs.BoolVar(&c.FanOut, "fanout", false, "measure how fetchers share the work of slow hosts, and nothing else")
	fs.IntVar(&c.Peers, "peers", 0, "measure how fast a plain controller with the defaults of client-go fills so many ConfigMaps beside this one, and nothing else")
	fs.BoolVar(&c.Short, "short", false, "measure with a fiftieth of everything")
	fs.StringVar(&c.Bin, "bin", "bin", "folder with watcher, fetcher and writer")
	fs.DurationVar(&c.Timeout, "timeout", 15*time.Minute, "time for all")
}

// shortPart is how much of everything a short run measures.
const shortPart = 0.02

// Shorten applies Short to the counts.
func (c *Config) Shorten() {
	if !c.Short {
		return
	}
	for _, count := range append(c.optional(), &c.N) {
		*count = int(float64(*count) * shortPart)
	}
	c.Rounds = 1
}

// optional are the counts that may be 0.
func (c *Config) optional() []*int {
	return []*int{&c.Idle, &c.Foreign, &c.Overdue, &c.Refresh, &c.Watchers, &c.Beside, &c.Remembered, &c.Tools, &c.Peers}
}

// Part is how much of everything is measured.
func (c *Config) Part() float64 {
	if c.Short {
		return shortPart
	}
	return 1
}

// Validate returns the first thing that is wrong, as a sentence.
func (c *Config) Validate() error {
	switch {
	case c.N < 2:
		return fmt.Errorf("-n: %d, at least 2 are needed", c.N)
	case c.Rounds < 1:
		return fmt.Errorf("-rounds: %d, at least 1 is needed", c.Rounds)
	case slices.ContainsFunc(c.optional(), func(count *int) bool { return *count < 0 }):
		return errors.New("-idle, -foreign and the other counts: a negative number makes no sense")
	case c.Size < minSize || c.Size > maxSize:
		return fmt.Errorf("-size: %d is not between %d and %d", c.Size, minSize, maxSize)
	case c.Restart && c.Scale == "":
		return errors.New("-restart: it needs -scale, whose last count it goes by")
	case c.Replicas != 1 && (c.Replicas != 3 || c.Refresh == 0):
		return fmt.Errorf("-replicas: %d is not 1, nor 3 with -refresh", c.Replicas)
	case c.Scrape < 0:
		return errors.New("-scrape: a negative duration makes no sense")
	case c.Timeout <= 0:
		return fmt.Errorf("-timeout: %s is not positive", c.Timeout)
	}
	for _, name := range []string{"watcher", "fetcher", "writer"} {
		if _, err := os.Stat(filepath.Join(c.Bin, name)); err != nil {
			return fmt.Errorf("-bin: %w; make build makes it", err)
		}
	}
	return nil
}
