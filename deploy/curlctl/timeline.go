package curlctl

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/object"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/proto/service/kube"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// objectStatus shows all about one ConfigMap as one timeline, below the conditions of
// its Watcher.
func (s *session) objectStatus(ctx context.Context, cluster kube.Options, namespace, name string) error {
	found, owner, err := ofWatcher(ctx, cluster, namespace, name)
	if err != nil {
		return err
	}
	if owner != nil {
		name = owner.ConfigMapName()
	}
	view := object.View{Namespace: namespace, ConfigMap: name, Timeline: []object.TimelineEntry{}}
	if owner != nil {
		view.ReadWatcher(owner)
	}
	if found != nil {
		if err := view.ReadMetadata(found); err != nil {
			return err
		}
	}
	if err := view.ReadStreams(ctx, s.Client, &s.unread); err != nil {
		return err
	}
	if found == nil && owner == nil && len(view.Timeline) == 0 {
		return exitf(exitNotFound, "ConfigMap %s/%s: not found", namespace, name)
	}
	if s.out.ForPrograms() {
		return s.out.Object("configmap/"+name, view)
	}
	s.printObject(view)
	_, err = s.out.List(timelineColumns(), printer.Rows(view.Timeline, func(o object.TimelineEntry) printer.Row {
		return printer.Row{Cells: []printer.Cell{
			printer.Text(printer.Clock(o.At)), printer.Text(s.relative(o.At)), printer.In(o.Colour, o.What), printer.Text(o.Key), printer.Text(o.Detail),
		}}
	}))
	return err
}

func timelineColumns() []printer.Column {
	columns := printer.Columns("TIME", "AGE", "WHAT", "KEY", "DETAIL")
	return printer.Wrapping(printer.Dropping(columns, "TIME", "KEY"), "DETAIL")
}

func (s *session) relative(at time.Time) string {
	if at.After(s.now()) {
		return "in " + printer.Until(s.now(), at)
	}
	return printer.Age(s.now(), at)
}

func (s *session) printObject(view object.View) {
	exists := printer.Text(view.Namespace + "/" + view.ConfigMap)
	switch {
	case view.Exists:
	case view.Watcher != nil:
		exists = printer.In(printer.Yellow, exists.Text+" (does not exist)")
	default:
		exists = printer.In(printer.Yellow, exists.Text+" (does not exist any more)")
	}
	fields := append(watcherFields(view), printer.Field{Name: "ConfigMap", Value: exists},
		printer.Field{Name: "UID", Value: printer.Text(view.UID)}, printer.Field{Name: "Annotation", Value: printer.Text(view.Annotation)})
	for _, ask := range view.Asks {
		fields = append(fields, printer.Field{Name: "Asks for", Value: printer.Text(ask.String())})
	}
	if view.Suspended {
		fields = append(fields, printer.Field{Name: "Suspended", Value: printer.In(printer.Yellow, "yes")})
	}
	s.out.Fields(append(fields, printer.Field{Name: "Problem", Value: printer.In(printer.Red, view.Problem)}))
	s.out.Linef("")
}

// watcherFields are those of the Watcher of a ConfigMap, if it has one.
func watcherFields(view object.View) []printer.Field {
	if view.Watcher == nil {
		return nil
	}
	fields := []printer.Field{{Name: "Watcher", Value: printer.Text(view.Namespace + "/" + view.Watcher.Name)}}
	for _, c := range view.Watcher.Conditions {
		colour := printer.Yellow
		switch {
		case c.Type == watchv1.ConditionStalled, c.Status == metav1.ConditionFalse:
			colour = printer.Red
		case c.Status == metav1.ConditionTrue && c.Type != watchv1.ConditionReconciling:
			colour = printer.Green
		}
		fields = append(fields, printer.Field{Name: c.Type, Value: printer.In(colour, string(c.Status)+", "+c.Reason+": "+c.Message)})
	}
	return fields
}
