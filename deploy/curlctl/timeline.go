package curlctl

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cluster"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/failure"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/operate"
	keys "github.com/kv8s/curl-me-that/proto/status"
)

// moments of an object, in time.
type occasion struct {
	At     time.Time `json:"at"`
	What   string    `json:"what"`
	Key    string    `json:"key,omitempty"`
	Detail string    `json:"detail,omitempty"`

	colour printer.Colour
}

// asked is one pair of the annotation as programs read it.
type asked struct {
	Key     string `json:"key"`
	URL     string `json:"url"`
	Refresh string `json:"refresh,omitempty"`
	SHA256  string `json:"sha256,omitempty"`
}

// String writes a pair for people.
func (a asked) String() string {
	text := a.Key + " = " + a.URL
	if a.Refresh != "" {
		text += ", every " + a.Refresh
	}
	return text
}

// objectView is an object as programs read it.
type objectView struct {
	Namespace  string     `json:"namespace"`
	ConfigMap  string     `json:"configMap"`
	Exists     bool       `json:"exists"`
	UID        string     `json:"uid,omitempty"`
	Annotation string     `json:"annotation,omitempty"`
	Asks       []asked    `json:"asks,omitempty"`
	Problem    string     `json:"problem,omitempty"`
	Suspended  bool       `json:"suspended,omitempty"`
	Timeline   []occasion `json:"timeline"`
}

// objectStatus shows all about one ConfigMap as one timeline.
func (s *session) objectStatus(ctx context.Context, kube cluster.Options, namespace, name string) error {
	object, err := configMap(ctx, kube, namespace, name)
	if err != nil {
		return err
	}
	view := objectView{Namespace: namespace, ConfigMap: name, Timeline: []occasion{}}
	if object != nil {
		if err := view.read(object); err != nil {
			return err
		}
	}
	if err := s.readObject(ctx, &view); err != nil {
		return err
	}
	if object == nil && len(view.Timeline) == 0 {
		return wrapNotFound("ConfigMap %s/%s", namespace, name)
	}
	slices.SortStableFunc(view.Timeline, func(a, b occasion) int { return a.At.Compare(b.At) })
	if s.out.ForPrograms() {
		return s.out.Object("configmap/"+name, view)
	}
	s.printObject(view)
	_, err = s.out.List(printer.Dropping(printer.Columns("TIME", "AGE", "WHAT", "KEY", "DETAIL"), "TIME", "KEY"), func(yield func(printer.Row, error) bool) {
		for _, o := range view.Timeline {
			if !yield(printer.Row{Cells: []printer.Cell{
				printer.Text(printer.Clock(o.At)), printer.Text(s.relative(o.At)), printer.In(o.colour, o.What), printer.Text(o.Key), printer.Text(o.Detail),
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

func (s *session) printObject(view objectView) {
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

// read adds what Kubernetes holds.
func (v *objectView) read(object *metav1.PartialObjectMetadata) error {
	v.Exists, v.UID = true, string(object.UID)
	v.add(object.CreationTimestamp.Time, "created", "", "", 0)
	grammar, err := annotation.New(annotation.Defaults())
	if err != nil {
		return err
	}
	request, err := grammar.Parse(object.Annotations)
	v.Annotation, v.Suspended = request.Annotation, request.Suspended
	if err != nil {
		v.Problem = err.Error()
	}
	for _, problem := range request.Problems {
		v.Problem = strings.TrimPrefix(v.Problem+"; "+problem.Text, "; ")
	}
	for _, pair := range request.Pairs {
		ask := asked{Key: pair.Key, URL: failure.WithoutQuery(pair.URL), SHA256: request.SHA256[pair.Key]}
		if request.Refresh > 0 {
			ask.Refresh = annotation.FormatDuration(request.Refresh)
		}
		v.Asks = append(v.Asks, ask)
	}
	state, err := keys.Parse(object.Annotations[annotation.StatusKey])
	if err != nil {
		v.Problem = strings.TrimPrefix(v.Problem+"; ", "; ") + "the status annotation cannot be read"
	}
	for _, key := range slices.Sorted(maps.Keys(state.Keys)) {
		e := state.Keys[key]
		if e.Written() {
			v.add(e.FetchedAt, "written", key, fmt.Sprintf("%d bytes, sha256 %s…, from %s", e.Size, e.SHA256[:12], failure.WithoutQuery(e.URL)), printer.Green)
		}
		if e.Failing() {
			v.add(e.Since, "failing since", key, e.Error+", "+plural(int(e.Attempts), "attempt")+" when it was reported", printer.Red)
		}
	}
	return nil
}

func (v *objectView) add(at time.Time, what, key, detail string, colour printer.Colour) {
	v.Timeline = append(v.Timeline, occasion{At: at.UTC(), What: what, Key: key, Detail: detail, colour: colour})
}

// readObject adds what NATS holds.
func (s *session) readObject(ctx context.Context, v *objectView) error {
	for w, err := range readable(s, s.Client.Wants(ctx, v.Namespace, v.ConfigMap)) {
		if err != nil {
			return err
		}
		v.add(w.At, "wanted", w.Key.Key, pipeline.CauseName(w.Want.GetCause())+": "+failure.WithoutQuery(w.Want.GetUrl()), printer.Cyan)
	}
	for t, err := range readable(s, s.Client.Timers(ctx, v.Namespace, v.ConfigMap)) {
		if err != nil {
			return err
		}
		v.add(t.At, "scheduled", t.Key.Key, pipeline.CauseName(t.Due.GetCause()), printer.Cyan)
	}
	for f, err := range readable(s, s.Client.DeadLetters(ctx, operate.DeadLetterFilter{Namespace: v.Namespace, Name: v.ConfigMap})) {
		if errors.Is(err, context.Canceled) || err != nil {
			return err
		}
		detail := fmt.Sprintf("failure %d: %s after %s", f.ID, f.Reason, plural(int(f.Message.GetFailure().GetAttempts()), "attempt"))
		if of := f.Message.GetReplayOf(); of > 0 {
			detail += fmt.Sprintf(", replay of %d", of)
		}
		v.add(f.At, "gave up", f.Key.Key, detail, printer.Red)
	}
	return nil
}
