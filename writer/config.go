// Package writer is the service that applies results to ConfigMaps. No other service changes fetched keys. It
// connects to the API server and to NATS, and to nothing outside the cluster.
package writer

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/kv8s/curl-me-that/proto/budget"
	"github.com/kv8s/curl-me-that/proto/kube"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/signature"
	"github.com/kv8s/curl-me-that/writer/internal/apply"
)

// Command returns the command line of the writer.
func Command() *cobra.Command {
	var c Config
	return process.NewCommand(&cobra.Command{
		Use:   "writer",
		Short: "Write fetched bodies into ConfigMaps",
		Long: "Writer takes results from NATS JetStream and applies them to ConfigMaps.\n" +
			"It needs the permissions to get and patch ConfigMaps and to create Events.",
	}, &c, func(ctx context.Context) error {
		return c.Kube.Run(ctx, &c.Service, "writer",
			func(ctx context.Context, rt *process.Runtime, cluster *rest.Config) error {
				kube.BridgeKlog(rt.Log)
				return Run(ctx, rt, c, cluster)
			})
	})
}

// Config is the configuration of the writer.
type Config struct {
	apply.Config
	// Events is the Event budget of each namespace.
	Events budget.Config

	Service process.Options
	Kube    kube.Options
	// Selection selects the ConfigMaps to write.
	Selection kube.Selection
	// TrustedKeys is the path of a file with one or two public NKeys of the watcher. If it is
	// empty, no want is trusted and each object is read before it is written.
	TrustedKeys string
}

// BindFlags adds the flags of the writer.
func (c *Config) BindFlags(fs *pflag.FlagSet) {
	c.Service.BindFlags(fs, ":8083")
	c.Kube.BindFlags(fs)
	c.Selection.BindFlags(fs)
	fs.IntVar(&c.Concurrency, "concurrency", 32, "maximum number of concurrent patches")
	fs.BoolVar(&c.Planner.Prune, "prune", true, "remove a key that is no longer annotated")
	fs.StringVar(&c.TrustedKeys, "trusted-keys", "", "file with one or two public NKeys of the watcher, which signs "+
		"wants, made by curlctl identities (without it each object is read before it is written)")
	c.bindBudgets(fs)
}

func (c *Config) bindBudgets(fs *pflag.FlagSet) {
	kube.BindEventBudget(fs, &c.Events)
	c.History.Bytes.Refill = pipeline.HistoryAge
	fs.Int64Var(&c.History.Bytes.Burst, "namespace-history-bytes", 256<<20,
		"bytes that one namespace may add to the history in 30 days (0: no limit)")
	fs.BoolVar(&c.History.Credentials, "history-credentials", false,
		"keep bodies in the history that were fetched with a credential, too")
	c.Writes.Refill, c.WriteBytes.Refill = 1000*time.Second, 256*time.Second
	fs.Int64Var(&c.Writes.Burst, "namespace-writes", 20_000,
		"write budget of one namespace, which refills in 1000 s (0: no limit)")
	fs.Int64Var(&c.WriteBytes.Burst, "namespace-write-bytes", 512<<20,
		"budget of written bytes of one namespace, which refills in 256 s (0: no limit)")
}

// Validate returns the first invalid flag as one sentence.
func (c *Config) Validate() error {
	if _, err := signature.LoadVerifier(c.TrustedKeys); err != nil {
		return fmt.Errorf("--trusted-keys: %w", err)
	}
	return cmp.Or(
		process.CheckFlag("concurrency", c.Concurrency >= 1 && c.Concurrency <= 1024, "from 1 to 1024"),
		process.CheckFlag("namespace-writes", c.Writes.Burst >= 0, process.NotNegative),
		process.CheckFlag("namespace-write-bytes", c.WriteBytes.Burst >= 0, process.NotNegative),
		process.CheckFlag("namespace-events", c.Events.Burst >= 0, process.NotNegative),
		process.CheckFlag("namespace-history-bytes", c.History.Bytes.Burst >= 0, process.NotNegative),
		c.Selection.Validate(),
	)
}
