// Package objects has the commands that read Kubernetes objects without NATS: check and pods.
package objects

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cli"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/podusage"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/proto/annotation/duration"
)

// PodsCommand returns the command pods.
func PodsCommand(o *cli.Options) *cobra.Command {
	all := false
	cmd := &cobra.Command{
		Use:   "pods NAMESPACE/NAME",
		Short: "List the containers that use a ConfigMap, and whether they can see its newest content (reads Kubernetes)",
		Long: "Lists the containers of running pods that use a ConfigMap, or the one of a Watcher, by\n" +
			"volume, projected, subPath, env or envFrom, and the sidecars of a Watcher. Environment\n" +
			"variables and subPath mounts are read only when a container starts. The kubelet updates files\n" +
			"of a volume within " + duration.Format(podusage.KubeletDelay) +
			" by default. Times have a precision of seconds. For a key that was not\n" +
			"fetched, the time is the last write of its manager. It needs the rights to get the ConfigMap\n" +
			"and to list pods, but no NATS.",
		Args:              cli.ExactlyOne("NAMESPACE/NAME"),
		ValidArgsFunction: o.CompleteObjects,
	}
	cmd.RunE = o.Offline(func(cmd *cobra.Command, out *printer.Printer, args []string) error {
		namespace, name, err := o.Object(args[0])
		if err != nil {
			return err
		}
		reader := o.Cluster()
		object, watcher, err := reader.Object(cmd.Context(), namespace, name)
		if err != nil {
			return err
		}
		if object == nil {
			return cli.Errorf(cli.NotFound, "ConfigMap %s/%s: not found", namespace, name)
		}
		cm := podusage.ConfigMap{Name: object.Name, Watcher: watcher, Changes: podusage.ChangesOf(object, watcher)}
		found, err := reader.Usage(cmd.Context(), namespace, cm, all)
		if err != nil {
			return err
		}
		if !out.ForPrograms() {
			printConfigMap(out, namespace, cm, o.Now())
		}
		return printUsage(out, found, o.Now())
	})
	cmd.Flags().BoolVar(&all, "all", false, "include terminated containers")
	return cmd
}

func printConfigMap(out *printer.Printer, namespace string, cm podusage.ConfigMap, now time.Time) {
	fields := []printer.Field{{Name: "ConfigMap", Value: namespace + "/" + cm.Name}}
	if cm.Watcher != nil {
		fields = append(fields, printer.Field{Name: "Watcher", Value: cm.Watcher.Name})
	}
	if at := cm.Changes.Of(nil); !at.IsZero() {
		changed := printer.Clock(at) + ", " + printer.Age(now, at) + " ago"
		fields = append(fields, printer.Field{Name: "Changed", Value: changed})
	}
	out.Fields(fields)
	out.Linef("")
}

func printUsage(out *printer.Printer, found []podusage.Usage, now time.Time) error {
	stale := 0
	n, err := out.List(printer.Table{Columns: "POD|CONTAINER|WAY|STARTED|NEWEST", Wide: "KEYS", Drop: "STARTED"},
		printer.Rows(found, func(c podusage.Usage) printer.Row {
			if c.Newest == podusage.No {
				stale++
			}
			return usageRow(c, now)
		}))
	if err != nil || out.ForPrograms() {
		return err
	}
	switch {
	case n == 0:
		out.Linef("No running pod uses it.")
	case stale > 0:
		out.Linef("")
		out.Linef("%s cannot see the newest content before a restart,", printer.Plural(stale, "container"))
		out.Linef("for example with `kubectl rollout restart`.")
	}
	return nil
}

func usageRow(c podusage.Usage, now time.Time) printer.Row {
	var ways []string
	for _, way := range c.Ways {
		ways = append(ways, string(way))
	}
	newest := map[podusage.Newest]printer.Cell{
		podusage.No:      printer.In(printer.Red, "no"),
		podusage.Unknown: printer.In(printer.Yellow, "unknown"),
		podusage.Soon:    printer.In(printer.Yellow, "within "+duration.Format(podusage.KubeletDelay)),
		podusage.AtStart: printer.In(printer.Grey, "at its start"),
		podusage.Yes:     printer.In(printer.Green, "yes"),
		podusage.Ended:   printer.In(printer.Grey, "ended"),
	}[c.Newest]
	return printer.Row{Name: "pod/" + c.Pod, Object: c, Cells: printer.Cells(
		c.Pod, c.Container, strings.Join(ways, ", "), printer.Age(now, c.Started), newest, strings.Join(c.Keys, ", "),
	)}
}
