package keeper

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

	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kv8s/curl-me-that/proto/headerfile"
	"github.com/kv8s/curl-me-that/proto/process"
	"github.com/kv8s/curl-me-that/proto/process/kube"
	"github.com/kv8s/curl-me-that/watcher/keeper/internal/teamsecret"
)

// teamInterval is the time between two checks of the Secrets of teams.
const teamInterval = 10 * time.Second

// reasonIgnored is the reason of the Events for Secrets of teams.
const reasonIgnored = "CredentialsIgnored"

// TeamSecrets has the settings for compiling the Secrets of teams.
type TeamSecrets struct {
	// Into is the Secret of the release as NAMESPACE/NAME (empty means that keeper compiles Watchers).
	Into string
	// From has NAMESPACE for all labelled Secrets of a namespace, or NAMESPACE/NAME for one.
	From []string
}

// Validate returns the first invalid setting.
func (t TeamSecrets) Validate() error {
	if t.Into == "" {
		return nil
	}
	if namespace, name, _ := strings.Cut(t.Into, "/"); namespace == "" || name == "" {
		return errors.New("--credentials is NAMESPACE/NAME of the Secret to write")
	}
	for _, from := range t.From {
		namespace, name, named := strings.Cut(from, "/")
		if err := kube.ValidateNamespaces("credentials-from", namespace); err != nil || namespace == "" || named &&
			name == "" {
			return errors.New("--credentials-from is a list of NAMESPACE or NAMESPACE/NAME")
		}
	}
	return nil
}

// names returns the names of Secrets by namespace (empty: all labelled ones).
func (t TeamSecrets) names() map[string][]string {
	names := map[string][]string{}
	for _, from := range t.From {
		namespace, name, named := strings.Cut(from, "/")
		if named {
			names[namespace] = append(names[namespace], name)
		} else if names[namespace] == nil {
			names[namespace] = []string{}
		}
	}
	return names
}

// teams compiles the Secrets of teams into one Secret.
type teams struct {
	settings TeamSecrets
	secrets  corev1client.SecretsGetter
	recorder *kube.Recorder
	log      zerolog.Logger
	part     *process.Part
	metrics  teamMetrics
	// failed has the last logged error of each namespace.
	failed map[string]string
}

func newTeams(rt *process.Runtime, settings TeamSecrets, cluster *rest.Config) (*teams, error) {
	metrics := newTeamMetrics(rt.Metrics)
	client, err := corev1client.NewForConfig(metrics.calls.Of(cluster))
	if err != nil {
		return nil, fmt.Errorf("use the cluster: %w", err)
	}
	return &teams{
		settings: settings, secrets: client, recorder: kube.NewRecorder(client, name, clock.RealClock{}),
		log: rt.Log, part: rt.Health.Part("credentials"), metrics: metrics, failed: map[string]string{},
	}, nil
}

// run compiles until ctx is done.
func (t *teams) run(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := t.compile(ctx); err != nil && ctx.Err() == nil {
			t.report("", err)
		} else {
			t.report("", nil)
			t.part.Ready()
		}
	}, teamInterval)
	return nil
}

// compile reads all Secrets once and writes the Secret of the release if its content changes.
func (t *teams) compile(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	namespace, name, _ := strings.Cut(t.settings.Into, "/")
	held, err := t.secrets.Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read Secret %s: %w", t.settings.Into, err)
	}
	var current []headerfile.TeamEntry
	_ = json.Unmarshal(held.Data[headerfile.TeamKey], &current) // invalid content is replaced
	names := t.settings.names()
	entries := []headerfile.TeamEntry{}
	problems := 0
	for _, from := range slices.Sorted(maps.Keys(names)) {
		compiled, ignored, err := t.compileFrom(ctx, from, names[from], teamsecret.MaxBytes/len(names))
		t.report(from, err)
		if problems += ignored; err != nil {
			problems++
		}
		if err != nil && !apierrors.IsForbidden(err) {
			// The Secrets of the namespace are unknown, so its entries stay.
			compiled = slices.DeleteFunc(slices.Clone(current), func(e headerfile.TeamEntry) bool { return e.Namespace != from })
		}
		entries = append(entries, compiled...)
	}
	t.metrics.problems.Set(float64(problems))
	text, err := json.Marshal(entries)
	if err != nil || bytes.Equal(text, held.Data[headerfile.TeamKey]) {
		return err
	}
	patch, err := json.Marshal(map[string]any{"data": map[string][]byte{headerfile.TeamKey: text}})
	if err != nil {
		return err
	}
	if _, err = t.secrets.Secrets(namespace).Patch(ctx, name, types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("write Secret %s: %w", t.settings.Into, err)
	}
	t.log.Info().Int("entries", len(entries)).Msg("wrote the credentials of teams to Secret " + t.settings.Into)
	return nil
}

// compileFrom compiles the Secrets of one namespace, and returns the number of ignored ones.
func (t *teams) compileFrom(ctx context.Context, namespace string, names []string,
	maxBytes int,
) ([]headerfile.TeamEntry, int, error) {
	secrets, err := t.read(ctx, namespace, names)
	if err != nil {
		return nil, 0, err
	}
	entries, ignored := teamsecret.Compile(secrets, maxBytes)
	for _, i := range ignored {
		err := t.recorder.Record(ctx, kube.Event{
			Kind: "Secret", Namespace: namespace, Name: i.Secret.Name, UID: i.Secret.UID, Warning: true,
			Reason: reasonIgnored, Action: "Ignore", Note: i.Reason, Occurrence: i.Secret.ResourceVersion + i.Reason,
		})
		if err != nil {
			t.log.Warn().Err(err).Msg("could not write an Event")
		}
	}
	return entries, len(ignored), nil
}

// read returns the named Secrets, or all with the label.
func (t *teams) read(ctx context.Context, namespace string, names []string) ([]corev1.Secret, error) {
	if len(names) == 0 {
		list, err := t.secrets.Secrets(namespace).List(ctx, metav1.ListOptions{LabelSelector: teamsecret.Label + "=true"})
		if err != nil {
			return nil, err
		}
		return list.Items, nil
	}
	var found []corev1.Secret
	for _, name := range names {
		s, err := t.secrets.Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found = append(found, *s)
	}
	return found, nil
}

// report logs the error of a namespace once, and its end.
func (t *teams) report(namespace string, err error) {
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
	default:
		t.log.Error().Err(err).Str("namespace", namespace).Msg("could not compile credentials, the last ones stay")
	}
}
