package status

import (
	"context"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cli"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cmd/keys"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/deadletter"
	objects "github.com/kv8s/curl-me-that/deploy/curlctl/internal/object"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/proto/keystate"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// object prints the history of one ConfigMap, and the conditions of its Watcher.
func object(ctx context.Context, s *cli.Session, namespace, name string) error {
	view := objects.View{Namespace: namespace, ConfigMap: name, Timeline: []objects.TimelineEntry{}}
	if err := view.ReadCluster(ctx, s.Cluster()); err != nil {
		return err
	}
	if err := view.ReadStreams(ctx, s.Client, s.Now()); err != nil {
		return err
	}
	if !view.Exists && view.Watcher == nil && len(view.Timeline) == 0 {
		return cli.Errorf(cli.NotFound, "ConfigMap %s/%s: not found", namespace, name)
	}
	if s.Out.ForPrograms() {
		return s.Out.Object("configmap/"+view.ConfigMap, view)
	}
	printFields(s, view)
	_, err := s.Out.List(printer.Table{Columns: "TIME|AGE|WHAT|KEY|DETAIL", Drop: "TIME|KEY", Wrap: "DETAIL"},
		printer.Rows(view.Timeline, func(e objects.TimelineEntry) printer.Row {
			return printer.Row{Cells: printer.Cells(
				printer.Clock(e.At), relative(s.Now(), e.At), printer.In(e.Colour, e.What), e.Key, e.Detail,
			)}
		}))
	return err
}

// sentence formats a condition as one sentence.
func sentence(now time.Time, c keystate.Condition) printer.Cell {
	text := strings.TrimSpace(string(c.State) + " " + deadletter.Reason(c.Reason, c.Status))
	if !c.Since.IsZero() && !c.Good() {
		text += " for " + printer.Age(now, c.Since)
	}
	if c.Message != "" {
		text += ": " + c.Message
	}
	if c.Next.After(now) && !c.Good() {
		text += ", next try in " + printer.Until(now, c.Next)
	}
	return printer.In(keys.Colour(c.State), text)
}

func relative(now, at time.Time) string {
	if at.After(now) {
		return "in " + printer.Until(now, at)
	}
	return printer.Age(now, at)
}

func printFields(s *cli.Session, view objects.View) {
	name := printer.In(0, view.Namespace+"/"+view.ConfigMap)
	switch {
	case view.Exists:
	case view.Watcher != nil:
		name = printer.In(printer.Yellow, name.Text+" (does not exist)")
	default:
		name = printer.In(printer.Yellow, name.Text+" (does not exist any more)")
	}
	fields := append(watcherFields(view), []printer.Field{
		{Name: "ConfigMap", Value: name},
		{Name: "UID", Value: view.UID},
		{Name: "Annotation", Value: view.Annotation},
	}...)
	for _, pair := range view.Asks {
		fields = append(fields, printer.Field{Name: "Fetches", Value: pair.String()})
	}
	fields = append(fields, printer.Field{Name: "Ignored", Value: printer.In(printer.Yellow, view.Ignored)},
		printer.Field{Name: "Problem", Value: printer.In(printer.Red, view.Problem)})
	for _, note := range view.Notes {
		fields = append(fields, printer.Field{Name: "Note", Value: printer.In(printer.Yellow, note)})
	}
	for _, k := range view.Keys {
		if k.State != keystate.Ignored {
			fields = append(fields, printer.Field{Name: "Key " + k.Key, Value: sentence(s.Now(), k.Condition)})
		}
	}
	s.Out.Fields(fields)
	s.Out.Linef("")
}

// watcherFields returns the name and the conditions of the Watcher, if there is one.
func watcherFields(view objects.View) []printer.Field {
	if view.Watcher == nil {
		return nil
	}
	fields := []printer.Field{{Name: "Watcher", Value: view.Namespace + "/" + view.Watcher.Name}}
	for _, c := range view.Watcher.Conditions {
		colour := printer.Yellow
		switch {
		case c.Type == watchv1.ConditionStalled, c.Status == metav1.ConditionFalse:
			colour = printer.Red
		case c.Status == metav1.ConditionTrue && c.Type != watchv1.ConditionReconciling:
			colour = printer.Green
		}
		value := printer.In(colour, string(c.Status)+", "+c.Reason+": "+c.Message)
		fields = append(fields, printer.Field{Name: c.Type, Value: value})
	}
	return fields
}
