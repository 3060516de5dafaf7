// Package failures has the commands that list, show, purge and replay failures.
package failures

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cli"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/deadletter"
	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
)

// filter holds the flags that select failures.
type filter struct {
	*cli.Options
	reason, host, name, key string
	since, until            string
}

func (f *filter) bindFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.reason, "reason", "", "only failures with this reason, such as Timeout")
	f.BindHost(cmd, &f.host)
	f.BindName(cmd, &f.name)
	fs.StringVar(&f.key, "key", "", "only failures of this key")
	fs.StringVar(&f.since, "since", "", "only failures since a time (RFC 3339) or a duration ago, such as 2h")
	fs.StringVar(&f.until, "until", "", "only failures before a time (RFC 3339) or a duration ago, such as 10m")
	cmd.PreRunE = func(*cobra.Command, []string) error { // before the connection
		_, err := f.parse(f.Now())
		return err
	}
	cli.Complete(cmd, "reason", cobra.FixedCompletions(deadletter.Reasons(), cli.Silently))
}

// any reports whether any flag is set.
func (f *filter) any() bool {
	return f.narrows() || f.Namespace != ""
}

// narrows reports whether any flag other than --namespace is set.
func (f *filter) narrows() bool { return f.reason+f.host+f.name+f.key+f.since+f.until != "" }

// none says that there is no such failure.
func none(f operate.DeadLetterFilter) string {
	if f == (operate.DeadLetterFilter{}) {
		return "No failures found."
	}
	return "No failures match; `curlctl failures --summary` shows reasons and hosts."
}

// parse parses the flags.
func (f *filter) parse(now time.Time) (operate.DeadLetterFilter, error) {
	parsed, err := deadletter.Selection{
		Reason: f.reason, Host: f.host, Namespace: f.Namespace, Name: f.name, Key: f.key, Since: f.since, Until: f.until,
	}.Filter(now)
	if err != nil {
		return parsed, cli.Usagef("--%w", err)
	}
	return parsed, nil
}
