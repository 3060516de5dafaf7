package curlctl

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/keystate"
)

// listing holds the flags of failing and wants.
type listing struct {
	keys.Filter

	summary bool
	// none is the message for an empty list.
	none string
}

// failingCommand returns the command failing.
func failingCommand(o *options) *cobra.Command {
	l := &listing{none: "No keys are failing, refused, contested, stale or pending."}
	cmd := l.command(o, "failing",
		"List the keys that are failing, refused, contested, stale or pending now (reads Kubernetes)")
	cmd.Long = "Lists keys whose last fetch failed, keys whose write the API server or another owner\n" +
		"prevents or keeps changing, keys without a good fetch for " + strconv.Itoa(failure.StaleIntervals) +
		" intervals, and keys that wait. It reads the streams\n" +
		"and the metadata of ConfigMaps; without NATS, only the latter. `curlctl failures` lists fetches\n" +
		"that failed for good, even if their keys have recovered."
	cmd.Flags().BoolVar(&l.HeldBack, "updates", false,
		"list pinned keys that wait for the approval of other content instead")
	return cmd
}

// wantsCommand returns the command wants.
func wantsCommand(o *options) *cobra.Command {
	l := &listing{none: "No keys are wanted."}
	cmd := l.command(o, "wants", "List all keys with state, next fetch, URL and last check (reads Kubernetes)")
	cmd.Flags().BoolVar(&l.Stale, "stale", false,
		"only keys without a good fetch for "+strconv.Itoa(failure.StaleIntervals)+" intervals")
	return cmd
}

func (l *listing) command(o *options, use, short string) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: noArgs,
		PreRunE: func(*cobra.Command, []string) error {
			if l.Reason != "" && !slices.Contains(reasons(), l.Reason) {
				return usagef("--reason: %q is not one of %s", l.Reason, strings.Join(reasons(), ", "))
			}
			return nil
		},
		RunE: o.Run(ifNATS, func(ctx context.Context, s *session, _ []string) error {
			l.Namespace, l.NotGood = s.Namespace, use == "failing" && !l.HeldBack
			return l.run(ctx, s)
		}),
	}
	fs := cmd.Flags()
	fs.StringVar(&l.Name, "name", "", "only ConfigMaps with this name")
	fs.StringVar(&l.Host, "host", "", "only this host")
	fs.StringVar(&l.Reason, "reason", "", "only keys with this reason, such as Timeout")
	fs.BoolVar(&l.summary, "summary", false, "count failing keys by state, reason and host, with the namespaces")
	o.completeFilters(cmd, reasons())
	return cmd
}

func (l *listing) run(ctx context.Context, s *session) error {
	all, err := s.Keys(ctx, l.Name)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(k keys.Key) bool { return !l.Selects(&k) })
	slices.SortFunc(all, func(a, b keys.Key) int {
		return cmp.Or(keystate.Compare(a.Condition, b.Condition), keys.Compare(a.ConfigMapKey, b.ConfigMapKey))
	})
	s.HintPaused(ctx)
	if l.summary {
		return list(s, keys.Groups(all), l.none)
	}
	return list(s, all, l.none)
}

// reasons returns the reasons of all states.
func reasons() []string { return append(keys.Reasons(), keystate.Reasons()...) }

// list prints a row of each item. If there are none, it prints the message none for people.
func list[T interface {
	Row(now time.Time) printer.Row
}](s *session, items []T, none string) error {
	now := s.Now()
	return s.List(printer.Rows(items, func(item T) printer.Row { return item.Row(now) }), none)
}
