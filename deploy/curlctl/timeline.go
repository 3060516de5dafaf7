package curlctl

import (
	"context"
	"time"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cluster"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/object"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
)

// objectStatus shows all about one ConfigMap as one timeline.
func (s *session) objectStatus(ctx context.Context, kube cluster.Options, namespace, name string) error {
	found, err := configMap(ctx, kube, namespace, name)
	if err != nil {
		return err
	}
	view := object.View{Namespace: namespace, ConfigMap: name, Timeline: []object.Occasion{}}
	if found != nil {
		if err := view.ReadMetadata(found); err != nil {
			return err
		}
	}
	if err := view.ReadStreams(ctx, s.Client, &s.unread); err != nil {
		return err
	}
	if found == nil && len(view.Timeline) == 0 {
		return wrapNotFound("ConfigMap %s/%s", namespace, name)
	}
	if s.out.ForPrograms() {
		return s.out.Object("configmap/"+name, view)
	}
	s.printObject(view)
	_, err = s.out.List(printer.Dropping(printer.Columns("TIME", "AGE", "WHAT", "KEY", "DETAIL"), "TIME", "KEY"), func(yield func(printer.Row, error) bool) {
		for _, o := range view.Timeline {
			if !yield(printer.Row{Cells: []printer.Cell{
				printer.Text(printer.Clock(o.At)), printer.Text(s.relative(o.At)), printer.In(o.Colour, o.What), printer.Text(o.Key), printer.Text(o.Detail),
			}}, nil) {
				return
			}
		}
	})
	return err
}

func (s *session) relative(at time.Time) string {
	if at.After(s.now()) {
		return "in " + printer.Until(s.now(), at)
	}
	return printer.Age(s.now(), at)
}

func (s *session) printObject(view object.View) {
	exists := printer.Text(view.Namespace + "/" + view.ConfigMap)
	if !view.Exists {
		exists = printer.In(printer.Yellow, exists.Text+" (does not exist any more)")
	}
	fields := []printer.Field{{Name: "ConfigMap", Value: exists}, {Name: "UID", Value: printer.Text(view.UID)}, {Name: "Annotation", Value: printer.Text(view.Annotation)}}
	for _, ask := range view.Asks {
		fields = append(fields, printer.Field{Name: "Asks for", Value: printer.Text(ask.String())})
	}
	if view.Suspended {
		fields = append(fields, printer.Field{Name: "Suspended", Value: printer.In(printer.Yellow, "yes")})
	}
	s.out.Fields(append(fields, printer.Field{Name: "Problem", Value: printer.In(printer.Red, view.Problem)}))
	s.out.Linef("")
}
