package curlctl

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/deadletter"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/overview"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/readable"
	"github.com/kv8s/curl-me-that/proto/condition"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/pipeline/operate"
)

// failingKey is a key that fails, waits or is stale, as programs read it.
type failingKey struct {
	Namespace string     `json:"namespace"`
	ConfigMap string     `json:"configMap"`
	Key       string     `json:"key"`
	State     string     `json:"state"`
	Reason    string     `json:"reason"`
	Status    int32      `json:"status,omitempty"`
	Since     *time.Time `json:"since,omitempty"`
	NextTry   *time.Time `json:"nextTry,omitempty"`
	Checked   *time.Time `json:"lastChecked,omitempty"`
	WaitsFor  string     `json:"waitsFor,omitempty"`
	Attempts  uint32     `json:"attempts,omitempty"`
	Host      string     `json:"host,omitempty"`
	URL       string     `json:"url"`

	condition condition.Condition
}

func failingCommand(o *options) *cobra.Command {
	var name, host string
	cmd := &cobra.Command{
		Use:   "failing",
		Short: "List the keys that fail, wait or are stale now, with reason and next try",
		Long: "Lists what is not well at this moment: keys whose last attempt failed, keys whose\n" +
			"fetch waits for a fetcher or for their host, and keys without a good fetch for " + strconv.Itoa(condition.StaleIntervals) + "\n" +
			"intervals. `curlctl failures` lists what was given up, also what has recovered.",
		Args: noArgs,
		RunE: o.run(func(ctx context.Context, s *session, _ []string) error {
			all, err := s.readFailing(ctx, name, host)
			if err != nil {
				return err
			}
			s.warnPaused(ctx)
			return s.printFailing(all)
		}),
	}
	o.bindName(cmd, &name)
	cmd.Flags().StringVar(&host, "host", "", "only keys of this host")
	complete(cmd, "host", o.completeHosts)
	return cmd
}

func (s *session) printFailing(all []failingKey) error {
	columns := printer.Dropping(printer.Columns("STATE", "REASON", "SINCE", "NEXT TRY", "HOST", "NAMESPACE", "CONFIGMAP", "KEY", "", "CHECKED", "WAITS FOR", "ATTEMPTS", "URL"),
		"HOST", "STATE", "SINCE")
	return s.list(columns, printer.Rows(all, s.failingRow), "Nothing fails, waits or is stale.")
}

func (s *session) failingRow(u failingKey) printer.Row {
	colour := printer.Yellow
	if u.condition.State == condition.Failing {
		colour = printer.Red
	}
	next := ""
	if u.NextTry != nil {
		next = printer.Until(s.now(), *u.NextTry)
	}
	return printer.Row{Name: "key/" + u.Namespace + "/" + u.ConfigMap + "/" + u.Key, Object: u, Cells: []printer.Cell{
		printer.In(colour, u.State), printer.In(colour, deadletter.Reason(u.Reason, u.Status)), printer.Text(printer.Age(s.now(), u.condition.Since)),
		printer.Text(next), printer.Text(u.Host), printer.Text(u.Namespace), printer.Text(u.ConfigMap), printer.Text(u.Key),
		printer.Text(printer.Age(s.now(), u.condition.Checked)), printer.Text(u.WaitsFor), printer.Number(u.Attempts), printer.Text(u.URL),
	}}
}

// readFailing reads the wants and timers and returns the keys that are not well.
func (s *session) readFailing(ctx context.Context, name, host string) ([]failingKey, error) {
	timers, handled, err := s.timers(ctx, name)
	if err != nil {
		return nil, err
	}
	var all []failingKey
	for w, err := range readable.Only(&s.unread, s.Client.Wants(ctx, s.namespace, name)) {
		if err != nil {
			return nil, err
		}
		c := condition.Of(w, timers[w.Key], handled, s.now())
		if c.State == condition.Well || host != "" && !pipeline.HostIs(w.Want.GetUrl(), host) {
			continue
		}
		all = append(all, newFailingKey(w, c))
	}
	slices.SortFunc(all, func(a, b failingKey) int {
		return cmp.Or(condition.Compare(a.condition, b.condition), cmp.Compare(a.Namespace+"/"+a.ConfigMap+"/"+a.Key, b.Namespace+"/"+b.ConfigMap+"/"+b.Key))
	})
	return all, nil
}

// timers reads the pending timers, and the sequence up to which the fetchers have
// taken all requests.
func (s *session) timers(ctx context.Context, name string) (timers map[pipeline.Key]*operate.Timer, handled uint64, err error) {
	if handled, err = s.handled(ctx); err != nil {
		return nil, 0, err
	}
	timers = map[pipeline.Key]*operate.Timer{}
	for t, err := range readable.Only(&s.unread, s.Client.Timers(ctx, s.namespace, name)) {
		if err != nil {
			return nil, 0, err
		}
		slim := t.WithoutWant()
		timers[t.Key] = &slim
	}
	return timers, handled, nil
}

func newFailingKey(w operate.Want, c condition.Condition) failingKey {
	u := failingKey{
		Namespace: w.Key.Namespace, ConfigMap: w.Key.Name, Key: w.Key.Key, State: string(c.State), Reason: c.Reason, Status: c.Status, Attempts: c.Attempts, WaitsFor: c.WaitsFor,
		Host: pipeline.HostOf(w.Want.GetUrl()), URL: deadletter.WithoutQuery(w.Want.GetUrl()), condition: c,
	}
	if !c.Since.IsZero() {
		u.Since = &c.Since
	}
	if !c.Checked.IsZero() {
		u.Checked = &c.Checked
	}
	if !c.Next.IsZero() {
		u.NextTry = &c.Next
	}
	return u
}

// handled returns the sequence up to which the fetchers have taken all requests.
func (s *session) handled(ctx context.Context) (uint64, error) {
	info, err := overview.Fetchers(ctx, s.JetStream)
	if err != nil {
		return 0, err
	}
	return info.AckFloor.Stream, nil
}

// The conditions of the key of a failure that is kept.
const (
	nowRecovered = "recovered"
	nowWanted    = "wanted"
	nowChanged   = "changed"
	nowGone      = "gone"
)

// nowOf returns what has become of a key that was given up.
func (s *session) nowOf(ctx context.Context, f operate.DeadLetter, handled uint64) (string, error) {
	want, sequence, err := s.Client.LastWant(ctx, f.Key)
	switch {
	case errors.Is(err, pipeline.ErrNoMessage), err == nil && want == nil:
		return nowGone, nil
	case errors.Is(err, pipeline.ErrMalformed):
		return nowChanged, nil
	case err != nil:
		return "", err
	case want.GetUid() != f.Message.GetWant().GetUid() || want.GetUrl() != f.Message.GetWant().GetUrl():
		return nowChanged, nil
	}
	timer, err := s.Client.PendingTimer(ctx, f.Key)
	if err != nil {
		if !errors.Is(err, pipeline.ErrNoMessage) {
			return "", err
		}
		due, err := s.Client.LastDue(ctx, f.Key)
		if err == nil && due > handled || sequence > handled {
			return nowWanted, nil
		}
		return nowRecovered, nil
	}
	c := condition.Of(operate.Want{Key: f.Key, Sequence: sequence, Want: want}, &timer, handled, s.now())
	if c.State == condition.Failing || c.State == condition.Waiting || c.Attempts > 0 || timer.Due.GetCause() == v1.Cause_CAUSE_REPLAY {
		return nowWanted, nil
	}
	return nowRecovered, nil
}
