package watcher

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
)

// DefaultLease is the name of the Lease unless another one is given.
const DefaultLease = "curl-me-that-watcher"

// ElectionConfig says how several watchers agree on the one that publishes.
// Two that publish at once do no harm; it only saves work.
type ElectionConfig struct {
	// Enabled turns the election on.
	Enabled bool
	// Namespace and Name of the Lease.
	Namespace, Name string
	// Identity of this watcher; empty: the host name and a random part.
	Identity string
	// Lease, Renew and Retry are the durations of client-go's leader election.
	Lease, Renew, Retry time.Duration
}

func (e *ElectionConfig) bindFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&e.Enabled, "leader-elect", false, "let one of several watchers publish; the others keep their cache warm")
	fs.StringVar(&e.Namespace, "leader-elect-namespace", "default", "namespace of the Lease")
	fs.StringVar(&e.Name, "leader-elect-name", DefaultLease, "name of the Lease")
	fs.StringVar(&e.Identity, "leader-elect-identity", "", "name of this watcher in the Lease; empty: the host name and a random part")
	fs.DurationVar(&e.Lease, "leader-elect-lease-duration", 15*time.Second, "how long others wait for a leader that is silent")
	fs.DurationVar(&e.Renew, "leader-elect-renew-deadline", 10*time.Second, "how long a leader tries to renew before it gives up")
	fs.DurationVar(&e.Retry, "leader-elect-retry-period", 2*time.Second, "pause between tries")
}

func (e *ElectionConfig) validate() error {
	switch {
	case !e.Enabled:
		return nil
	case len(validation.IsDNS1123Label(e.Namespace)) > 0:
		return fmt.Errorf("--leader-elect-namespace: %q is not the name of a namespace", e.Namespace)
	case len(validation.IsDNS1123Subdomain(e.Name)) > 0:
		return fmt.Errorf("--leader-elect-name: %q is not the name of a Lease", e.Name)
	case e.Lease < time.Second:
		return fmt.Errorf("--leader-elect-lease-duration: %s is shorter than a second", e.Lease)
	case e.Retry <= 0 || e.Renew <= e.Retry*12/10 || e.Lease <= e.Renew:
		return errors.New("--leader-elect-lease-duration must be longer than --leader-elect-renew-deadline, and that at least 1.2 times --leader-elect-retry-period")
	}
	return nil
}
