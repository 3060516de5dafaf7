// Package credentials is the program keeper --credentials. It compiles the Secrets of teams into one Secret of the
// release, whose content is a header file of the fetchers.
package credentials

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/proto/budget"
	"github.com/kv8s/curl-me-that/proto/headerfile"
	"github.com/kv8s/curl-me-that/proto/kube"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/process/metric"
)

const (
	// interval is the time between two checks of the Secrets.
	interval = 10 * time.Second
	// requestTimeout limits reading and writing the Secret of the release, and writing Events.
	requestTimeout = 10 * time.Second
	// namespaceTimeout, maxSecrets and pageSize limit the time for one namespace, its Secrets with the label, and
	// those in memory in full, so that no team stops the credentials of others.
	namespaceTimeout     = 5 * time.Second
	maxSecrets, pageSize = 64, 8
)

// eventBudget is the budget of Events of a namespace.
var eventBudget = budget.Config{Burst: 2 * maxSecrets, Refill: time.Hour} //nolint:gochecknoglobals // a constant

// errTooMany is an error that removes the entries of a namespace. If they stayed, a team could keep a credential
// in force by creating Secrets.
var errTooMany = fmt.Errorf("more than %d Secrets have the label %s", maxSecrets, TeamLabel)

// reasonIgnored is the reason of the Events for ignored Secrets.
const reasonIgnored = "CredentialsIgnored"

// Config has the settings of the program.
type Config struct {
	// Into is the Secret of the release as NAMESPACE/NAME (empty: this program is not wanted).
	Into string
	// From has NAMESPACE for all labelled Secrets of a namespace, or NAMESPACE/NAME for one.
	From []string
}

// BindFlags adds the flags of the program.
func (c *Config) BindFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.Into, "credentials", "",
		"compile the credentials of teams into this Secret, NAMESPACE/NAME, and do nothing else")
	fs.StringSliceVar(&c.From, "credentials-from", nil,
		"Secrets to compile, as NAMESPACE/NAME, or NAMESPACE for all with the label "+TeamLabel)
}

// Validate returns the first invalid setting.
func (c *Config) Validate() error {
	if c.Into == "" {
		return nil
	}
	if namespace, name, _ := strings.Cut(c.Into, "/"); namespace == "" || name == "" || strings.Contains(name, "/") {
		return errors.New("--credentials is NAMESPACE/NAME of the Secret to write")
	}
	for _, from := range c.From {
		namespace, name, named := strings.Cut(from, "/")
		if err := kube.ValidateNamespaces("credentials-from", namespace); err != nil || namespace == "" ||
			named && name == "" || strings.Contains(name, "/") {
			return errors.New("--credentials-from is a list of NAMESPACE or NAMESPACE/NAME")
		}
	}
	return nil
}

// names returns the names of Secrets by namespace (empty: all labelled ones). Duplicates would look like two Secrets
// for the same hosts.
func (c *Config) names() map[string][]string {
	names := map[string][]string{}
	for _, from := range c.From {
		namespace, name, _ := strings.Cut(from, "/")
		names[namespace] = append(names[namespace], name)
	}
	for namespace, listed := range names {
		slices.Sort(listed)
		if names[namespace] = slices.Compact(listed); listed[0] == "" {
			names[namespace] = nil
		}
	}
	return names
}

// teams compiles the Secrets of teams into one Secret.
type teams struct {
	config   Config
	secrets  corev1client.SecretsGetter
	recorder *kube.Recorder
	log      zerolog.Logger
	part     *process.HealthPart
	metrics  metrics
	// failed has the last logged error of each namespace, and written the Events of the last look.
	failed  map[string]string
	written map[kube.Event]bool
	lines   *process.SampledLog
}

// service is the name of the service in metrics and Events. Both programs of the binary have the same.
const service = "keeper"

// metrics are the metrics of the program.
type metrics struct {
	own, standard      *metric.Set
	calls              *kube.RequestMetrics
	problems, compiled prometheus.Gauge
}

func newMetrics(registry prometheus.Registerer) metrics {
	m := metrics{own: metric.New(registry, service), standard: metric.Standard(registry)}
	m.calls = kube.NewRequestMetrics(m.standard, "GET", "POST", "PATCH")
	m.problems = m.own.Gauge("credentials_problems",
		"With --credentials: Secrets that are ignored, namespaces that cannot be read, and a failed write.")
	m.compiled = m.own.Gauge("credentials_timestamp_seconds",
		"With --credentials: when the compiled Secret was last up to date.")
	return m
}

// Metrics returns the definitions of the metrics that keeper has only with --credentials.
func Metrics() []metric.Definition { return newMetrics(prometheus.NewRegistry()).own.Definitions() }

// Run runs the program until ctx is done. It returns an error only if a retry cannot help.
func Run(ctx context.Context, rt *process.Runtime, c Config, cluster *rest.Config) error {
	t, err := newTeams(rt, c, cluster)
	if err != nil {
		return err
	}
	rt.Started()
	t.run(ctx)
	return nil
}

func newTeams(rt *process.Runtime, c Config, cluster *rest.Config) (*teams, error) {
	metrics := newMetrics(rt.Metrics)
	client, err := corev1client.NewForConfig(metrics.calls.Counted(cluster))
	if err != nil {
		return nil, fmt.Errorf("use the cluster: %w", err)
	}
	return &teams{
		config: c, secrets: client, recorder: kube.NewRecorder(client, service, clock.RealClock{}, kube.EventBudget{
			Budget: budget.New(eventBudget, time.Now), Log: rt.Log,
		}),
		log: rt.Log, part: rt.Health.Part("credentials"), metrics: metrics, failed: map[string]string{},
		lines: process.NewSampledLog(rt.Log),
	}, nil
}

// run compiles until ctx is done.
func (t *teams) run(ctx context.Context) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		err := t.compile(ctx)
		if ctx.Err() != nil {
			return
		}
		if t.logError("", err); err != nil {
			t.part.NotReady("credentials are not up to date")
			return
		}
		t.part.Ready()
	}, interval)
}

// compile reads all Secrets once and writes the Secret of the release if its content changes. Each namespace
// has a deadline of its own. Events come last, because the credentials of all namespaces wait for the write.
func (t *teams) compile(ctx context.Context) (err error) {
	problems := 0
	defer func() {
		if err != nil {
			problems++
		}
		t.metrics.problems.Set(float64(problems))
	}()
	into, err := t.get(ctx)
	if err != nil {
		return fmt.Errorf("read Secret %s: %w", t.config.Into, err)
	}
	var current []headerfile.Entry
	_ = json.Unmarshal(into.Data[headerfile.TeamKey], &current) // invalid content is replaced
	names := t.config.names()
	entries := []headerfile.Entry{}
	var events []kube.Event
	for _, from := range slices.Sorted(maps.Keys(names)) {
		compiled, ignored, err := t.compileFrom(ctx, from, names[from], MaxBytes/len(names))
		t.logError(from, err)
		if problems += len(ignored); err != nil {
			problems++
		}
		if err != nil && !removes(err) {
			// The Secrets of the namespace are unknown, so its entries stay.
			compiled = slices.DeleteFunc(slices.Clone(current), func(e headerfile.Entry) bool {
				return !slices.Contains(e.Namespaces, from)
			})
		}
		entries, events = append(entries, compiled...), append(events, ignored...)
	}
	if err = t.write(ctx, into, entries, listed(events)); err == nil {
		t.metrics.compiled.SetToCurrentTime()
	}
	t.emit(ctx, events)
	return err
}

// get returns the Secret of the release.
func (t *teams) get(ctx context.Context) (*corev1.Secret, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	namespace, name, _ := strings.Cut(t.config.Into, "/")
	return t.secrets.Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
}

// ignoredAnnotation lists the ignored Secrets on the Secret of the release, at most maxListed bytes of them. Events of
// Secrets are hard to find: kubectl describe does not show them.
const (
	ignoredAnnotation = "x-kv8s.io/curl-ignored"
	maxListed         = 8 << 10
)

// listed returns a line for each ignored Secret.
func listed(ignored []kube.Event) string {
	var text strings.Builder
	for i, e := range ignored {
		line := e.Namespace + "/" + e.Name + ": " + e.Note + "\n"
		if text.Len()+len(line) > maxListed {
			fmt.Fprintf(&text, "and %d more\n", len(ignored)-i)
			break
		}
		text.WriteString(line)
	}
	return text.String()
}

// write changes the Secret of the release, unless it has these entries and this list of ignored Secrets.
func (t *teams) write(ctx context.Context, into *corev1.Secret, entries []headerfile.Entry, ignored string) error {
	text, err := json.Marshal(entries)
	if err != nil || bytes.Equal(text, into.Data[headerfile.TeamKey]) && ignored == into.Annotations[ignoredAnnotation] {
		return err
	}
	list := &ignored
	if ignored == "" {
		list = nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]*string{ignoredAnnotation: list}},
		"data":     map[string][]byte{headerfile.TeamKey: text},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if _, err = t.secrets.Secrets(into.Namespace).Patch(ctx, into.Name, types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("write Secret %s: %w", t.config.Into, err)
	}
	t.log.Info().Int("entries", len(entries)).Msg("wrote the credentials of teams to Secret " + t.config.Into)
	return nil
}

// compileFrom compiles the Secrets of one namespace, and returns an Event for each ignored one.
func (t *teams) compileFrom(ctx context.Context, namespace string, names []string,
	maxBytes int,
) (entries []headerfile.Entry, events []kube.Event, err error) {
	ctx, cancel := context.WithTimeout(ctx, namespaceTimeout)
	defer cancel()
	secrets, err := t.readSecrets(ctx, namespace, names, maxBytes)
	if err != nil {
		return nil, nil, err
	}
	entries, ignored := Compile(secrets, maxBytes)
	for _, i := range ignored {
		events = append(events, kube.Event{
			Kind: "Secret", Namespace: namespace, Name: i.Secret.Name, UID: i.Secret.UID, Warning: true,
			Reason: reasonIgnored, Action: "Ignore", Note: i.Reason, Occurrence: i.Secret.ResourceVersion + i.Reason,
		})
	}
	return entries, events, nil
}

// emit writes the Events that are new since the last call. The next call writes those that are over budget or failed.
func (t *teams) emit(ctx context.Context, events []kube.Event) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	written := map[kube.Event]bool{}
	for _, e := range events {
		if !t.written[e] {
			_, short, err := t.recorder.Record(ctx, e)
			if err != nil {
				t.lines.Line(zerolog.WarnLevel, "event").Err(err).Msg("could not write an Event")
			}
			if short != nil || err != nil {
				continue
			}
		}
		written[e] = true
	}
	t.written = written
}

// readSecrets returns the named Secrets, or all with the label. It reads few at once, and omits what Compile does not
// need.
func (t *teams) readSecrets(
	ctx context.Context, namespace string, names []string, maxBytes int,
) (found []corev1.Secret, err error) {
	keep := func(s corev1.Secret) {
		s.ManagedFields, s.OwnerReferences = nil, nil
		size := 0
		for _, value := range s.Data {
			size += len(value)
		}
		if size > maxBytes {
			s.Data = map[string][]byte{fmt.Sprintf("data of more than %d KiB", maxBytes>>10): nil} // the Event says so
		}
		found = append(found, s)
	}
	for _, name := range names {
		s, err := t.secrets.Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			keep(*s)
		} else if !apierrors.IsNotFound(err) {
			return nil, err
		}
	}
	page := metav1.ListOptions{LabelSelector: TeamLabel + "=true", Limit: pageSize}
	for more := len(names) == 0; more; more = page.Continue != "" {
		list, err := t.secrets.Secrets(namespace).List(ctx, page)
		if err != nil {
			return nil, err
		}
		for _, s := range list.Items {
			keep(s)
		}
		page.Continue = list.Continue
		if len(found) > maxSecrets {
			return nil, errTooMany
		}
	}
	return found, nil
}

// removes reports whether the entries of a namespace are removed because of an error.
func removes(err error) bool { return apierrors.IsForbidden(err) || errors.Is(err, errTooMany) }

// logError logs the error of a namespace once, and its end.
func (t *teams) logError(namespace string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text == t.failed[namespace] {
		return
	}
	t.failed[namespace] = text
	switch {
	case err == nil:
		t.log.Info().Str("namespace", namespace).Msg("credentials can be read again")
	case apierrors.IsForbidden(err) && namespace != "":
		t.log.Error().Str("namespace", namespace).Msg("no permission to read the Secrets of the namespace, so its " +
			"credentials are removed: add it to credentials.namespaces")
	case removes(err):
		t.log.Error().Err(err).Str("namespace", namespace).Msg("the credentials of the namespace are removed until it " +
			"has fewer Secrets")
	default:
		t.log.Error().Err(err).Str("namespace", namespace).Msg("could not compile credentials, the last ones stay")
	}
}
