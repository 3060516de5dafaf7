package curlctl

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/natsconn"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/readable"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/operate"
)

// Bounds of what completion reads: it must not make the shell wait.
const (
	completeTimeout = 2 * time.Second
	completeMost    = 100
)

const silently = cobra.ShellCompDirectiveNoFileComp

// completeContexts lists the contexts of the nats command.
func completeContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	config := os.Getenv("XDG_CONFIG_HOME")
	if config == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, silently
		}
		config = filepath.Join(home, ".config")
	}
	files, err := filepath.Glob(filepath.Join(config, "nats", "context", "*.json"))
	if err != nil {
		return nil, silently
	}
	for i, file := range files {
		files[i] = strings.TrimSuffix(filepath.Base(file), ".json")
	}
	return candidates(files), silently
}

// candidates leaves out what a shell would not take as one plain word, and makes the
// descriptions behind a tab printable.
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

// live completes with what NATS knows; without an answer, with nothing.
func (o *options) live(cmd *cobra.Command, read func(context.Context, *natsconn.Connection) []string) ([]string, cobra.ShellCompDirective) {
	environment(cmd)
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
	defer cancel()
	conn, ctx, err := o.nats.Open(ctx)
	if err != nil {
		return nil, silently
	}
	defer conn.Close()
	return candidates(read(ctx, conn)), silently
}

func (o *options) completeFailures(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if cmd.Name() == "show" && len(args) > 0 {
		return nil, silently
	}
	return o.live(cmd, func(ctx context.Context, conn *natsconn.Connection) (ids []string) {
		for f, err := range readable.Only(new(readable.Unread), conn.Client.DeadLetters(ctx, operate.DeadLetterFilter{Namespace: o.namespace})) {
			if err != nil || len(ids) == completeMost {
				return ids
			}
			ids = append(ids, strconv.FormatUint(f.ID, 10)+"\t"+f.Reason+" "+f.Key.String())
		}
		return ids
	})
}

func (o *options) completeHosts(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return o.live(cmd, func(ctx context.Context, conn *natsconn.Connection) []string {
		hosts := map[string]bool{}
		counts, err := conn.Client.CountDeadLetters(ctx, operate.DeadLetterFilter{Namespace: o.namespace})
		if err != nil {
			return nil
		}
		for k := range counts {
			hosts[k.Host] = true
		}
		return slices.Sorted(maps.Keys(hosts))
	})
}

// completeNames lists ConfigMaps for which something is wanted.
func (o *options) completeNames(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return o.wanted(cmd, func(k pipeline.Key) string { return k.Name })
}

func (o *options) completeNamespaces(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return o.wanted(cmd, func(k pipeline.Key) string { return k.Namespace })
}

// completeObjects lists them as namespace/name.
func (o *options) completeObjects(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, silently
	}
	return o.wanted(cmd, func(k pipeline.Key) string { return k.Namespace + "/" + k.Name })
}

func (o *options) wanted(cmd *cobra.Command, name func(pipeline.Key) string) ([]string, cobra.ShellCompDirective) {
	return o.live(cmd, func(ctx context.Context, conn *natsconn.Connection) []string {
		names := map[string]bool{}
		for w, err := range readable.Only(new(readable.Unread), conn.Client.Wants(ctx, o.namespace, "")) {
			if err != nil || len(names) == completeMost {
				break
			}
			names[name(w.Key)] = true
		}
		return slices.Sorted(maps.Keys(names))
	})
}
