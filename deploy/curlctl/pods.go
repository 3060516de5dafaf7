package curlctl

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cluster"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/podusage"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/proto/annotation/duration"
	"github.com/kv8s/curl-me-that/proto/service/kube"
)

func podsCommand(o *options) *cobra.Command {
	p := &podList{options: o}
	cmd := &cobra.Command{
		Use:   "pods NAMESPACE/NAME",
		Short: "List the containers that use a ConfigMap, and which cannot have its newest content (reads Kubernetes)",
		Long: "Lists the containers of running pods that use the ConfigMap, or that of the Watcher,\n" +
			"with the way: volume, projected, subPath, env, envFrom; and sidecar, if the Watcher\n" +
			"put the container there. Any ConfigMap will do. Environment and subPath are read when\n" +
			"a container starts, and never again. Files of a volume are updated by the kubelet\n" +
			"within " + duration.Format(podusage.KubeletDelay) + " as nodes are by default; whether a program reads them again is up to it.\n" +
			"Times have seconds, and of keys that were not fetched the time is that of the last\n" +
			"write of their manager. It needs the rights to get the ConfigMap and to list pods,\n" +
			"and no NATS.",
		Args:              exactlyOne("NAMESPACE/NAME"),
		ValidArgsFunction: o.completeObjects,
	}
	cmd.RunE = o.offline(func(cmd *cobra.Command, out *printer.Printer, args []string) error {
		namespace, name, err := o.object(args[0])
		if err != nil {
			return err
		}
		p.out = out
		return p.list(cmd.Context(), namespace, name)
	})
	p.cluster.BindUserFlags(cmd.Flags())
	cmd.Flags().BoolVar(&p.all, "all", false, "containers that have ended, too")
	return cmd
}

// podList is one run of the command.
type podList struct {
	*options
	cluster kube.Options
	all     bool
	out     *printer.Printer
}

func (p *podList) list(ctx context.Context, namespace, name string) error {
	object, watcher, err := ofWatcher(ctx, p.cluster, namespace, name)
	if err != nil {
		return err
	}
	if object == nil {
		return exitf(exitNotFound, "ConfigMap %s/%s: not found", namespace, name)
	}
	cm := podusage.ConfigMap{Name: object.Name, Watcher: watcher, Changes: podusage.ChangesOf(object, watcher)}
	found, err := p.consumers(ctx, namespace, cm)
	if err != nil {
		return err
	}
	if !p.out.ForPrograms() {
		fields := []printer.Field{{Name: "ConfigMap", Value: printer.Text(namespace + "/" + object.Name)}}
		if watcher != nil {
			fields = append(fields, printer.Field{Name: "Watcher", Value: printer.Text(watcher.Name)})
		}
		if at := cm.Changes.Of(nil); !at.IsZero() {
			fields = append(fields, printer.Field{Name: "Changed", Value: printer.Text(printer.Clock(at) + ", " + printer.Age(p.now(), at) + " ago")})
		}
		p.out.Fields(fields)
		p.out.Linef("")
	}
	return p.print(found)
}

// consumers returns the containers that use a ConfigMap, by pod.
func (p *podList) consumers(ctx context.Context, namespace string, cm podusage.ConfigMap) ([]podusage.Usage, error) {
	var found []podusage.Usage
	err := fromKubernetes(cluster.Pods(ctx, p.cluster, namespace, func(pod *corev1.Pod) {
		for _, c := range podusage.In(pod, cm, p.now()) {
			if p.all || c.Newest != podusage.Ended {
				found = append(found, c)
			}
		}
	}), "list pods of namespace "+namespace)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(found, func(a, b podusage.Usage) int { return cmp.Compare(a.Pod, b.Pod) })
	return found, nil
}

func (p *podList) print(found []podusage.Usage) error {
	stale := 0
	n, err := p.out.List(printer.Dropping(printer.Columns("POD", "CONTAINER", "WAY", "STARTED", "NEWEST", "", "KEYS"), "STARTED"), printer.Rows(found, func(c podusage.Usage) printer.Row {
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
		p.out.Linef("No running pod uses it; of pods that are not there nothing is known.")
	case stale > 0:
		p.out.Linef("")
		p.out.Linef("%s cannot have the newest content before a new start,", printer.Plural(stale, "container"))
		p.out.Linef("such as by `kubectl rollout restart`.")
	}
	return nil
}

func (p *podList) row(c podusage.Usage) printer.Row {
	var ways []string
	for _, way := range c.Ways {
		ways = append(ways, string(way))
	}
	started := ""
	if c.Started != nil {
		started = printer.Age(p.now(), *c.Started)
	}
	newest := map[podusage.Newest]printer.Cell{
		podusage.No:      printer.In(printer.Red, "no"),
		podusage.Unknown: printer.In(printer.Yellow, "unknown"),
		podusage.Soon:    printer.In(printer.Yellow, "within "+duration.Format(podusage.KubeletDelay)),
		podusage.AtStart: printer.In(printer.Grey, "at its start"),
		podusage.Yes:     printer.In(printer.Green, "yes"),
		podusage.Ended:   printer.In(printer.Grey, "ended"),
	}[c.Newest]
	return printer.Row{Name: "pod/" + c.Pod, Object: c, Cells: []printer.Cell{
		printer.Text(c.Pod), printer.Text(c.Container), printer.Text(strings.Join(ways, ", ")), printer.Text(started), newest, printer.Text(strings.Join(c.Keys, ", ")),
	}}
}
