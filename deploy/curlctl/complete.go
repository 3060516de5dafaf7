package curlctl

import (
	"context"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/broker"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/sentence"
)

// Limits of completion, which must not keep the shell waiting.
const (
	completeTimeout = 2 * time.Second
	completeMax     = 100
)

// noFiles completes nothing else, in particular no file names.
const noFiles = cobra.ShellCompDirectiveNoFileComp

// complete sets the completion of a flag.
func complete(cmd *cobra.Command, flag string, by cobra.CompletionFunc) {
	_ = cmd.RegisterFlagCompletionFunc(flag, by) // fails only if the flag does not exist
}

// completeFilters sets the completion of the flags that select keys or failures.
func (o *options) completeFilters(cmd *cobra.Command, reasons []string) {
	complete(cmd, "reason", cobra.FixedCompletions(reasons, noFiles))
	complete(cmd, "name", o.wanted(func(w broker.StoredWant) string { return w.Key.Name }))
	complete(cmd, "host", o.wanted(func(w broker.StoredWant) string { return sentence.Host(w.Want.GetUrl()) }))
}

// candidates drops words that a shell could interpret, and makes the descriptions after a tab printable.
func candidates(all []string) []string {
	var safe []string
	for _, one := range all {
		word, description, described := strings.Cut(one, "\t")
		if !printer.Bare(word) {
			continue
		}
		if described {
			word += "\t" + printer.Printable(description)
		}
		safe = append(safe, word)
	}
	return safe
}

// completeContexts lists the contexts of the nats command.
func completeContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	files, _ := filepath.Glob(filepath.Join(broker.ContextDir(), "context", "*.json")) // fails only for a wrong pattern
	for i, file := range files {
		files[i] = strings.TrimSuffix(filepath.Base(file), ".json")
	}
	return candidates(files), noFiles
}

// live completes with data from NATS. Without a connection there are no candidates.
func (o *options) live(read func(context.Context, *broker.Client) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		_ = process.ApplyEnv(cmd.Flags()) // PersistentPreRunE does not run here, and completion prints no errors
		ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
		defer cancel()
		conn, err := o.NATS.Open(ctx, o.Kube)
		if err != nil {
			return nil, noFiles
		}
		defer conn.Close()
		ctx, end := conn.Denials.CancelOnDenied(ctx, broker.AnySubject)
		defer end()
		return candidates(read(ctx, conn.Client)), noFiles
	}
}

// first completes only the first argument.
func first(by cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, to string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, noFiles
		}
		return by(cmd, args, to)
	}
}

// completeFailures lists IDs of failures.
func (o *options) completeFailures(cmd *cobra.Command, args []string, to string) ([]string, cobra.ShellCompDirective) {
	return o.live(func(ctx context.Context, client *broker.Client) (ids []string) {
		for f, err := range client.DeadLetters(ctx, broker.DeadLetterFilter{Namespace: o.Namespace}) {
			if err != nil || len(ids) == completeMax {
				break
			}
			ids = append(ids, strconv.FormatUint(f.ID, 10)+"\t"+f.Reason+" "+f.Key.String())
		}
		return ids
	})(cmd, args, to)
}

// completeObjects lists wanted ConfigMaps as NAMESPACE/NAME.
func (o *options) completeObjects(cmd *cobra.Command, args []string, to string) ([]string, cobra.ShellCompDirective) {
	return first(o.wanted(func(w broker.StoredWant) string { return w.Key.Namespace + "/" + w.Key.Name }))(cmd, args, to)
}

// wanted completes with a field of wants.
func (o *options) wanted(field func(broker.StoredWant) string) cobra.CompletionFunc {
	return o.live(func(ctx context.Context, client *broker.Client) (names []string) {
		for w, err := range client.Wants(ctx, o.Namespace, "") {
			if err != nil || len(names) == completeMax {
				break
			}
			if name := field(w); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		return names
	})
}
