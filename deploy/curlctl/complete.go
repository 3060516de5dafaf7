package curlctl

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process"
)

// Limits of completion, which must not keep the shell waiting.
const (
	completeTimeout = 2 * time.Second
	completeMax     = 100
)

// Silently completes nothing else, in particular no file names.
const silently = cobra.ShellCompDirectiveNoFileComp

// complete sets the completion of a flag.
func complete(cmd *cobra.Command, flag string, by cobra.CompletionFunc) {
	_ = cmd.RegisterFlagCompletionFunc(flag, by) // fails only if the flag does not exist
}

// candidates drops words that a shell could interpret, and makes the descriptions after a tab printable.
func candidates(all []string) []string {
	var safe []string
	for _, one := range all {
		word, description, described := strings.Cut(one, "\t")
		if strings.ContainsFunc(word, func(r rune) bool {
			return !strings.ContainsRune("-._:/=", r) && (r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r))
		}) {
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
	files, err := filepath.Glob(filepath.Join(operate.ContextDir(), "context", "*.json"))
	if err != nil {
		return nil, silently
	}
	for i, file := range files {
		files[i] = strings.TrimSuffix(filepath.Base(file), ".json")
	}
	return candidates(files), silently
}

// live completes with data from NATS. Without a connection there are no candidates.
func (o *options) live(
	cmd *cobra.Command, read func(context.Context, *operate.Connection) []string,
) ([]string, cobra.ShellCompDirective) {
	_ = process.ApplyEnv(cmd.Flags()) // PersistentPreRunE does not run here, and completion prints no errors
	conn, err := o.NATS.Open(cmd.Context(), o.Kube)
	if err != nil {
		return nil, silently
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
	defer cancel()
	ctx, end := conn.Refusals.CancelOnDenied(ctx)
	defer end()
	return candidates(read(ctx, conn)), silently
}

// CompleteFailures lists IDs of failures.
func (o *options) CompleteFailures(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if cmd.Name() == "show" && len(args) > 0 {
		return nil, silently
	}
	return o.live(cmd, func(ctx context.Context, conn *operate.Connection) (ids []string) {
		all := conn.Client.DeadLetters(ctx, operate.DeadLetterFilter{Namespace: o.Namespace})
		for f, err := range all {
			if err != nil || len(ids) == completeMax {
				return ids
			}
			ids = append(ids, strconv.FormatUint(f.ID, 10)+"\t"+f.Reason+" "+f.Key.String())
		}
		return ids
	})
}

// CompleteHosts lists hosts with failures.
func (o *options) CompleteHosts(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return o.live(cmd, func(ctx context.Context, conn *operate.Connection) []string {
		hosts := map[string]bool{}
		counts, err := conn.Client.CountDeadLetters(ctx, operate.DeadLetterFilter{Namespace: o.Namespace})
		if err != nil {
			return nil
		}
		for k := range counts {
			hosts[k.Host] = true
		}
		return slices.Sorted(maps.Keys(hosts))
	})
}

// CompleteNames lists names of wanted ConfigMaps.
func (o *options) CompleteNames(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return o.wanted(cmd, func(k pipeline.Key) string { return k.Name })
}

// CompleteNamespaces lists namespaces of wanted ConfigMaps.
func (o *options) CompleteNamespaces(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return o.wanted(cmd, func(k pipeline.Key) string { return k.Namespace })
}

// CompleteObjects lists wanted ConfigMaps as NAMESPACE/NAME.
func (o *options) CompleteObjects(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, silently
	}
	return o.wanted(cmd, func(k pipeline.Key) string { return k.Namespace + "/" + k.Name })
}

func (o *options) wanted(cmd *cobra.Command, name func(pipeline.Key) string) ([]string, cobra.ShellCompDirective) {
	return o.live(cmd, func(ctx context.Context, conn *operate.Connection) []string {
		names := map[string]bool{}
		for w, err := range conn.Client.Wants(ctx, o.Namespace, "") {
			if err != nil || len(names) == completeMax {
				break
			}
			names[name(w.Key)] = true
		}
		return slices.Sorted(maps.Keys(names))
	})
}
