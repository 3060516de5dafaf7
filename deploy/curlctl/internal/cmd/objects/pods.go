// Package objects has the commands that read Kubernetes objects without NATS: check and pods.
package objects

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cli"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/podusage"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/proto/annotation/duration"
)

// pods is one run of the command.
type pods struct {
	*cli.Options
	all bool
	out *printer.Printer
}

// PodsCommand returns the command pods.
func PodsCommand(o *cli.Options) *cobra.Command {
	p := &pods{Options: o}
	cmd := &cobra.Command{
		Use:   "pods NAMESPACE/NAME",
		Short: "List the containers that use a ConfigMap, and whether they can have its newest content (reads Kubernetes)",
		Long: "Lists the containers of running pods that use a ConfigMap, or that of a Watcher, by volume,\n" +
			"projected, subPath, env or envFrom, and the sidecars of a Watcher. Environment variables\n" +
			"and subPath mounts are read only when a container starts. The kubelet updates files of a\n" +
			"volume within " + duration.Format(podusage.KubeletDelay) +
			" by default. Times have a precision of seconds. The time of a\n" +
			"key that was not fetched is that of the last write of its manager. It needs the rights to\n" +
			"get the ConfigMap and to list pods, and no NATS.",
		Args:              cli.ExactlyOne("NAMESPACE/NAME"),
		ValidArgsFunction: o.CompleteObjects,
	}
	cmd.RunE = o.Offline(func(cmd *cobra.Command, out *printer.Printer, args []string) error {
		namespace, name, err := o.Object(args[0])
		if err != nil {
			return err
		}
		p.out = out
		return p.list(cmd.Context(), namespace, name)
	})
	cmd.Flags().BoolVar(&p.all, "all", false, "include terminated containers")
	return cmd
}

func (p *pods) list(ctx context.Context, namespace, name string) error {
	object, watcher, err := p.Cluster().Object(ctx, namespace, name)
	if err != nil {
		return err
	}
	if object == nil {
		return cli.Errorf(cli.NotFound, "ConfigMap %s/%s: not found", namespace, name)
	}
	cm := podusage.ConfigMap{Name: object.Name, Watcher: watcher, Changes: podusage.ChangesOf(object, watcher)}
	found, err := p.Cluster().Usage(ctx, namespace, cm, p.all)
	if err != nil {
		return err
	}
	if !p.out.ForPrograms() {
		fields := []printer.Field{{Name: "ConfigMap", Value: namespace + "/" + object.Name}}
		if watcher != nil {
			fields = append(fields, printer.Field{Name: "Watcher", Value: watcher.Name})
		}
		if at := cm.Changes.Of(nil); !at.IsZero() {
			changed := printer.Clock(at) + ", " + printer.Age(p.Now(), at) + " ago"
			fields = append(fields, printer.Field{Name: "Changed", Value: changed})
		}
		p.out.Fields(fields)
		p.out.Linef("")
	}
	return p.print(found)
}

func (p *pods) print(found []podusage.Usage) error {
	stale := 0
	n, err := p.out.List(printer.Table{Columns: "POD|CONTAINER|WAY|STARTED|NEWEST", Wide: "KEYS", Drop: "STARTED"},
		printer.Rows(found, func(c podusage.Usage) printer.Row {
			if c.Newest == podusage.No {
				stale++
			}
			return p.row(c)
		}))
	if err != nil || p.out.ForPrograms() {
		return err
	}
	switch {
	case n == 0:
		p.out.Linef("No running pod uses it.")
	case stale > 0:
		p.out.Linef("")
		p.out.Linef("%s cannot have the newest content before a restart,", printer.Plural(stale, "container"))
		p.out.Linef("for example by `kubectl rollout restart`.")
	}
	return nil
}

func (p *pods) row(c podusage.Usage) printer.Row {
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
		c.Pod, c.Container, strings.Join(ways, ", "), printer.Age(p.Now(), c.Started), newest, strings.Join(c.Keys, ", "),
	)}
}
