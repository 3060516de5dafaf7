package curlctl

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/deadletter"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/operator"
	"github.com/kv8s/curl-me-that/proto/pipeline/operate"
)

// deadLetterFilter is what selects failures on the command line.
type deadLetterFilter struct {
	*options
	reason, host, name, key string
	since, until            string
}

func (f *deadLetterFilter) bindFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.reason, "reason", "", "only failures with this reason, such as Timeout")
	fs.StringVar(&f.host, "host", "", "only failures of this host")
	fs.StringVar(&f.name, "name", "", "only failures of ConfigMaps with this name")
	fs.StringVar(&f.key, "key", "", "only failures of this key")
	fs.StringVar(&f.since, "since", "", "only failures from then on: a duration ago such as 2h, or a time (RFC 3339)")
	fs.StringVar(&f.until, "until", "", "only failures before then: a duration ago such as 10m, or a time (RFC 3339)")
	complete(cmd, "reason", cobra.FixedCompletions(deadletter.Reasons(), silently))
	complete(cmd, "host", f.completeHosts)
	complete(cmd, "name", f.completeNames)
}

// any reports whether the flags select at all.
func (f *deadLetterFilter) any() bool {
	return f.reason+f.host+f.name+f.key+f.since+f.until+f.namespace != ""
}

// filter reads the flags.
func (f *deadLetterFilter) filter(now time.Time) (operate.DeadLetterFilter, error) {
	filter, err := deadletter.Selection{
		Reason: f.reason, Host: f.host, Namespace: f.namespace, Name: f.name, Key: f.key, Since: f.since, Until: f.until,
	}.Filter(now)
	if err != nil {
		return filter, usagef("--%w", err)
	}
	return filter, nil
}

// failureIDs reads ids as listings print them: 12, or failure/12.
func failureIDs(args []string) ([]uint64, error) {
	var ids []uint64
	for _, arg := range args {
		id, err := strconv.ParseUint(strings.TrimPrefix(arg, "failure/"), 10, 64)
		if err != nil || id == 0 {
			return nil, usagef("%q is not the ID of a failure; `curlctl failures` lists them", arg)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// words returns the flags and arguments that were given, for the audit.
func words(fs *pflag.FlagSet, args []string) string {
	var all []string
	fs.Visit(func(f *pflag.Flag) {
		switch f.Name {
		case "reason", "host", "name", "key", "since", "until", "namespace", "all", "over", "rate", "for":
			word := "--" + f.Name
			if f.Value.Type() != "bool" {
				word += "=" + f.Value.String()
			}
			all = append(all, word)
		}
	})
	return operator.Filter(append(all, args...))
}
