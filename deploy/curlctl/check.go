package curlctl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/fault"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/fetcher"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/duration"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/keystate"
	"github.com/kv8s/curl-me-that/proto/rule"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// checking holds the flags of check.
type checking struct {
	*session
	fetcher   fetcher.Config
	files     []string
	fetch     bool
	offline   bool
	protected []string
}

// checkCommand returns the command check.
func checkCommand(o *options) *cobra.Command {
	c := &checking{fetcher: fetcher.DefaultConfig()}
	cmd := &cobra.Command{
		Use:   "check NAMESPACE/NAME | -f MANIFEST…",
		Short: "Predict what happens to a ConfigMap or Watcher (reads Kubernetes, or a file)",
		Long: "Parses the annotations like the watcher, and checks each URL against the egress policy\n" +
			"like the fetcher with the same flags. For a Watcher it checks its sources. It resolves\n" +
			"host names without --offline, fetches nothing without --fetch, and writes nothing. It needs no NATS.\n\n" +
			"With --fetch it makes the fetcher's GET, without If-None-Match and If-Modified-Since,\n" +
			"and prints what was sent and received.",
		Args:              takes(0, 1),
		ValidArgsFunction: o.completeObjects,
	}
	cmd.RunE = o.Run(withoutNATS, func(ctx context.Context, s *session, args []string) error {
		c.session = s
		objects, found, err := c.objects(ctx, args)
		if err != nil {
			return err
		}
		return c.run(ctx, objects, found)
	})
	fs := cmd.Flags()
	c.fetcher.BindPolicyFlags(fs)
	fs.StringSliceVarP(&c.files, "filename", "f", nil,
		"files with ConfigMaps and Watchers, or folders of .yaml, .yml and .json files (-: standard input)")
	fs.BoolVar(&c.fetch, "fetch", false, "fetch each allowed URL once, from this machine")
	fs.BoolVar(&c.offline, "offline", false, "check names of hosts without resolving them, as in CI")
	fs.StringSliceVar(&c.protected, "protected-namespaces", annotation.DefaultProtected(), "namespaces to ignore")
	return cmd
}

// objects reads the objects to check, and finds the invalid documents of the files or the ignored Secrets.
func (c *checking) objects(ctx context.Context, args []string) ([]corev1.ConfigMap, []finding, error) {
	if (len(c.files) == 0) == (len(args) == 0) {
		return nil, nil, usagef("check needs either NAMESPACE/NAME or -f MANIFEST")
	}
	if c.fetch && c.offline {
		return nil, nil, usagef("give either --fetch or --offline")
	}
	if len(c.files) != 0 {
		return c.manifests()
	}
	namespace, name, err := c.ParseObject(args[0])
	if err != nil {
		return nil, nil, err
	}
	object, w, err := c.Cluster().Object(ctx, namespace, name)
	switch {
	case err != nil:
		return nil, nil, err
	case w != nil && w.ConfigMapName() != name:
		return []corev1.ConfigMap{compiled(w)}, nil, nil
	case object == nil:
		return nil, nil, errorf(fault.NotFound, "ConfigMap or Watcher %s/%s: not found", namespace, name)
	}
	return []corev1.ConfigMap{{ObjectMeta: object.ObjectMeta}}, c.ignoredSecrets(ctx, namespace, name), nil
}

// ignoredSecrets returns a finding for each Event of the namespace about ignored credentials, because kubectl describe
// shows no Events of Secrets. Without the right to list Events, there are none.
func (c *checking) ignoredSecrets(ctx context.Context, namespace, name string) (found []finding) {
	events, _ := c.Cluster().Events(ctx, namespace, "CredentialsIgnored")
	for _, e := range events {
		found = append(found, finding{
			ConfigMap: namespace + "/" + name, OK: true, Outcome: e.Reason,
			Detail: "Secret " + e.InvolvedObject.Name + ": " + e.Message,
		})
	}
	return found
}

// manifests reads the objects of all files.
func (c *checking) manifests() (objects []corev1.ConfigMap, invalid []finding, err error) {
	for _, name := range c.files {
		files, err := manifestsIn(name)
		if err != nil {
			return nil, nil, err
		}
		for _, file := range files {
			more, wrong, err := c.manifest(file)
			if err != nil {
				return nil, nil, fmt.Errorf("read manifest %s: %w", file, err)
			}
			objects, invalid = append(objects, more...), append(invalid, wrong...)
		}
	}
	if len(objects)+len(invalid) == 0 {
		return nil, nil, errorf(fault.NotFound, "ConfigMap or Watcher in %s: not found", strings.Join(c.files, ", "))
	}
	return objects, invalid, nil
}

// manifestsIn returns the manifests in a folder, but not those in its folders, like kubectl. Any other name is
// that of a file.
func manifestsIn(name string) (files []string, err error) {
	if info, err := os.Stat(name); name == "-" || err != nil || !info.IsDir() {
		return []string{name}, nil //nolint:nilerr // reading it reports the error
	}
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, fmt.Errorf("read folder of manifests: %w", err)
	}
	for _, e := range entries {
		if !e.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) {
			files = append(files, filepath.Join(name, e.Name()))
		}
	}
	return files, nil
}

// manifest reads the objects of a file.
func (c *checking) manifest(name string) (objects []corev1.ConfigMap, invalid []finding, err error) {
	in := c.In
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, nil, err //nolint:wrapcheck // by the caller
		}
		defer file.Close()
		in = file
	}
	document := 0
	for decoder := yaml.NewYAMLOrJSONDecoder(in, 4096); ; {
		var text json.RawMessage
		err := decoder.Decode(&text)
		if errors.Is(err, io.EOF) {
			return objects, invalid, nil
		}
		if err != nil {
			return nil, nil, err //nolint:wrapcheck // by the caller
		}
		document++
		for _, item := range items(text) {
			if objects, err = c.add(objects, item); err != nil {
				where := fmt.Sprintf("%s, document %d", name, document)
				invalid = append(invalid, finding{ConfigMap: where, Outcome: "InvalidManifest", Detail: explained(err)})
			}
		}
	}
}

// items returns the objects of a list, such as kubectl prints, or else the document.
func items(text json.RawMessage) []json.RawMessage {
	var list struct {
		Kind  string            `json:"kind"`
		Items []json.RawMessage `json:"items"`
	}
	if json.Unmarshal(text, &list) == nil && strings.HasSuffix(list.Kind, "List") {
		return list.Items
	}
	return []json.RawMessage{text}
}

// add appends an object if it is a ConfigMap or a Watcher.
func (c *checking) add(objects []corev1.ConfigMap, text json.RawMessage) ([]corev1.ConfigMap, error) {
	var kind metav1.TypeMeta
	var object corev1.ConfigMap
	err := json.Unmarshal(text, &kind)
	switch {
	case err != nil:
	case kind.Kind == "ConfigMap":
		err = json.Unmarshal(text, &object)
	case kind.Kind == watchv1.Kind && kind.APIVersion == watchv1.GroupVersion().String():
		var w watchv1.Watcher
		err = json.Unmarshal(text, &w)
		object = compiled(&w)
	default:
		return objects, nil
	}
	if err != nil {
		return objects, err
	}
	object.Namespace = cmp.Or(object.Namespace, c.Namespace, metav1.NamespaceDefault)
	return append(objects, object), nil
}

// explained returns the message for an object that cannot be decoded.
func explained(err error) string {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return err.Error()
	}
	text := wrong.Field + " has a " + wrong.Value + " instead of a " + wrong.Type.String()
	if wrong.Type.Kind() == reflect.String {
		text += " (put quotes around it)"
	}
	return text
}

// compiled returns the ConfigMap of a Watcher.
func compiled(w *watchv1.Watcher) corev1.ConfigMap {
	return corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.Namespace, Name: w.ConfigMapName(), Labels: w.Labels,
			Annotations: w.AnnotationsFor(annotation.DefaultKey),
		},
		Data: w.Spec.ConfigData, BinaryData: w.Spec.ConfigBinaryData,
	}
}

// finding is one row: the outcome for an object, a key or an expression.
type finding struct {
	ConfigMap string   `json:"configMap"`
	Key       string   `json:"key,omitempty"`
	URL       keys.URL `json:"url,omitempty"`
	OK        bool     `json:"ok"`
	Outcome   string   `json:"outcome"`
	Detail    string   `json:"detail,omitempty"`
}

// run checks the objects, and prints what it finds after the earlier findings.
func (c *checking) run(ctx context.Context, objects []corev1.ConfigMap, found []finding) error {
	for i := range objects {
		all, err := c.check(ctx, &objects[i])
		if err != nil {
			return err
		}
		found = append(found, all...)
	}
	_, err := c.Out.List(printer.Rows(found, func(f finding) printer.Row {
		return printer.Row{
			Name: "configmap/" + f.ConfigMap, Object: f, Wide: printer.Cells("URL", f.URL),
			Cells: printer.Cells("CONFIGMAP", f.ConfigMap, "KEY", f.Key, "OUTCOME", f.Outcome, "DETAIL", f.Detail),
		}
	}))
	if err == nil && slices.ContainsFunc(found, func(f finding) bool { return !f.OK }) {
		return silent(fault.ProblemFound)
	}
	return err
}

// check checks one object.
func (c *checking) check(ctx context.Context, object *corev1.ConfigMap) ([]finding, error) {
	whole := finding{ConfigMap: object.Namespace + "/" + object.Name}
	known := keys.ReadObject(&object.ObjectMeta, c.protected)
	var found []finding
	invalid := failure.Reason(failure.InvalidAnnotation)
	if known.Invalid != nil {
		found = append(found, whole.as(invalid, known.Invalid.Error()))
	}
	for _, problem := range known.Request.Problems {
		f := whole.as(invalid, problem.Text)
		f.Key = problem.Key
		if problem.Adjusted {
			f.OK, f.Outcome = true, failure.ReasonAdjusted
		}
		found = append(found, f)
	}
	switch {
	case known.Invalid != nil:
		return found, nil //nolint:nilerr // the error is a finding
	case known.Ignored != "":
		f := whole.as(string(keystate.Ignored), known.Ignored)
		f.OK = !annotation.Protects(c.protected, object.Namespace, object.Name)
		return append(found, f), nil
	case object.Immutable != nil && *object.Immutable:
		return append(found, whole.as(failure.Reason(failure.Immutable),
			"it is immutable, so no key can be written")), nil
	}
	pairs, err := c.pairs(ctx, whole, known, object)
	return append(found, pairs...), err
}

// as returns a copy with an outcome.
func (f finding) as(outcome, detail string) finding {
	f.Outcome, f.Detail = outcome, detail
	return f
}

func (c *checking) pairs(
	ctx context.Context, whole finding, known keys.Object, object *corev1.ConfigMap,
) ([]finding, error) {
	var found []finding
	request := known.Request
	for _, pair := range request.Pairs {
		f := whole
		f.Key, f.URL = pair.Key, keys.URL(pair.URL)
		rules := request.Rules[pair.Key]
		preview, err := c.fetcher.Preview(ctx, fetcher.PreviewRequest{
			Namespace: object.Namespace, URL: pair.URL, Fetch: c.fetch, Offline: c.offline, Rules: rules,
			Held: known.Status.Keys[pair.Key].Size,
		})
		if err != nil {
			return nil, err
		}
		f.Detail = preview.Reason
		_, inData := object.Data[pair.Key]
		_, inBinary := object.BinaryData[pair.Key]
		shown := known.View(pair.Key)
		if inData || inBinary { // of a manifest, and whoever applies it owns the key
			shown = &keystate.View{Owner: annotation.Ownership{State: annotation.Foreign}}
		}
		digest := request.SHA256[pair.Key]
		now := keystate.Of(known.Spec(pair), shown, nil, c.Now())
		switch {
		case now.State == keystate.Refused, now.State.Bad() && !c.fetch:
			f.Outcome, f.Detail = now.Reason, now.Message
		case now.Good() && !preview.Allowed && !c.fetch:
			f.OK, f.Outcome = true, "fetched"
			f.Detail = "the flags of this command would deny it: " + preview.Reason
		case preview.Failure != "":
			f.Outcome = preview.Failure
		case !preview.Allowed:
			f.Outcome = failure.Reason(failure.AddressDenied)
		case c.fetch && digest != "" && digest != preview.SHA256:
			f.Outcome = failure.Reason(failure.DigestMismatch)
			f.Detail = "the body has sha256 " + preview.SHA256 + ", curl-sha256 requires " + digest
		case c.fetch:
			f.OK, f.Outcome, f.Detail = true, "fetched", fmt.Sprintf("%d bytes, sha256 %s", preview.Size, preview.SHA256)
			if _, cause := preview.Outcome.Failed(); cause != rule.Passed {
				f.OK, f.Outcome = false, failure.Reason(failure.ContentRejected)
			}
		default:
			f.OK, f.Outcome = true, "would be fetched"
			if interval := request.Interval(pair.Key); interval > 0 {
				f.Outcome += " every " + duration.Format(interval)
			}
			if preview.Credential != "" {
				f.Detail += ", and " + preview.Credential
			}
		}
		found = append(append(found, f), hops(whole, pair.Key, preview)...)
		found = append(found, expressions(whole, pair.Key, preview.Outcome)...)
	}
	return found, nil
}

// hops returns two rows for each hop of the GET: what the fetcher sent, and what it got.
func hops(whole finding, key string, preview fetcher.Preview) (found []finding) {
	whole.Key, whole.OK = key, true
	for i, hop := range preview.Hops {
		if i == 0 && preview.Credential != "" {
			hop[0] += "; " + preview.Credential
		}
		found = append(found, whole.as("sent", hop[0]), whole.as("received", hop[1]))
	}
	return found
}

// expressions returns a row for each evaluated expression of a key.
func expressions(whole finding, key string, outcome rule.Evaluation) []finding {
	var found []finding
	for _, x := range outcome.Expressions {
		f := whole
		f.Key, f.OK, f.Outcome, f.Detail = key, x.Cause == rule.Passed, x.Cause.String(), "curl-expect: "+x.Text
		if !x.IsRule {
			f.Detail = "curl-select: " + x.Text
		}
		if f.OK && !x.IsRule {
			f.Outcome = fmt.Sprintf("%d bytes", len(outcome.Selected))
		}
		found = append(found, f)
	}
	return found
}
