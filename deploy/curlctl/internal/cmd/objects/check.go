package objects

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cli"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cluster"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/deadletter"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/fetcher"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/annotation/duration"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/process/kube"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// checking holds the flags of check.
type checking struct {
	*cli.Options
	cluster   kube.Options
	fetcher   fetcher.Config
	file      string
	fetch     bool
	protected []string
}

// CheckCommand returns the command check.
func CheckCommand(o *cli.Options) *cobra.Command {
	c := &checking{Options: o, fetcher: fetcher.DefaultConfig()}
	cmd := &cobra.Command{
		Use:   "check NAMESPACE/NAME | -f MANIFEST",
		Short: "Predict what happens to a ConfigMap or Watcher (reads Kubernetes, or a file)",
		Long: "Parses the annotations like the watcher, and checks each URL against the egress policy\n" +
			"like the fetcher with the same flags. For a Watcher it checks its sources. It resolves\n" +
			"host names, but fetches nothing without --fetch, and writes nothing. It needs no NATS.",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: o.CompleteObjects,
	}
	cmd.RunE = o.Offline(func(cmd *cobra.Command, out *printer.Printer, args []string) error {
		objects, err := c.objects(cmd.Context(), cmd.InOrStdin(), args)
		if err != nil {
			return err
		}
		return c.run(cmd.Context(), out, objects)
	})
	fs := cmd.Flags()
	c.cluster.BindUserFlags(fs)
	c.fetcher.BindPolicyFlags(fs)
	fs.StringVarP(&c.file, "filename", "f", "", "file with ConfigMaps and Watchers (-: standard input)")
	fs.BoolVar(&c.fetch, "fetch", false, "fetch each allowed URL once, from this machine")
	fs.StringSliceVar(&c.protected, "protected-namespaces", annotation.DefaultProtected(), "namespaces to ignore")
	return cmd
}

// objects reads the objects to check.
func (c *checking) objects(ctx context.Context, in io.Reader, args []string) ([]corev1.ConfigMap, error) {
	if (c.file == "") == (len(args) == 0) {
		return nil, cli.Usagef("check needs either NAMESPACE/NAME or -f MANIFEST")
	}
	if c.file != "" {
		return c.manifest(in)
	}
	namespace, name, err := c.Object(args[0])
	if err != nil {
		return nil, err
	}
	object, w, err := cluster.Lookup(ctx, c.cluster, namespace, name)
	switch {
	case err != nil:
		return nil, err
	case w != nil && w.ConfigMapName() != name:
		return []corev1.ConfigMap{compiled(w)}, nil
	case object == nil:
		return nil, cli.Errorf(cli.NotFound, "ConfigMap or Watcher %s/%s: not found", namespace, name)
	}
	return []corev1.ConfigMap{{ObjectMeta: object.ObjectMeta}}, nil
}

func (c *checking) manifest(in io.Reader) ([]corev1.ConfigMap, error) {
	if c.file != "-" {
		file, err := os.Open(c.file)
		if err != nil {
			return nil, fmt.Errorf("read manifest: %w", err)
		}
		defer file.Close()
		in = file
	}
	var objects []corev1.ConfigMap
	for decoder := yaml.NewYAMLOrJSONDecoder(in, 4096); ; {
		var text json.RawMessage
		err := decoder.Decode(&text)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			objects, err = c.add(objects, text)
		}
		if err != nil {
			return nil, fmt.Errorf("read manifest %s: %w", c.file, err)
		}
	}
	if len(objects) == 0 {
		return nil, cli.Errorf(cli.NotFound, "ConfigMap or Watcher in %s: not found", c.file)
	}
	return objects, nil
}

// add adds an object if it is a ConfigMap or a Watcher.
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
	object.Namespace = cmp.Or(object.Namespace, c.Namespace, metav1.NamespaceDefault)
	return append(objects, object), err
}

// compiled returns the ConfigMap of a Watcher.
func compiled(w *watchv1.Watcher) corev1.ConfigMap {
	return corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.Namespace, Name: w.ConfigMapName(), Labels: w.Labels, Annotations: w.Asks(annotation.DefaultKey),
		},
		Data: w.Spec.ConfigData, BinaryData: w.Spec.ConfigBinaryData,
	}
}

// checked is a finding as programs read it.
type checked struct {
	ConfigMap string `json:"configMap"`
	Key       string `json:"key,omitempty"`
	URL       string `json:"url,omitempty"`
	OK        bool   `json:"ok"`
	Verdict   string `json:"verdict"`
	Detail    string `json:"detail,omitempty"`
}

func (c *checking) run(ctx context.Context, out *printer.Printer, objects []corev1.ConfigMap) error {
	grammar, err := annotation.New(annotation.Defaults())
	if err != nil {
		return err
	}
	var found []checked
	for i := range objects {
		all, err := c.check(ctx, grammar, &objects[i])
		if err != nil {
			return err
		}
		found = append(found, all...)
	}
	_, err = out.List(printer.Table{Columns: "CONFIGMAP|KEY|VERDICT|DETAIL", Wide: "URL", Wrap: "DETAIL"},
		printer.Rows(found, func(f checked) printer.Row {
			colour := printer.Green
			if !f.OK {
				colour = printer.Red
			}
			cells := printer.Cells(f.ConfigMap, f.Key, printer.In(colour, f.Verdict), f.Detail, f.URL)
			return printer.Row{Name: "configmap/" + f.ConfigMap, Object: f, Cells: cells}
		}))
	if err == nil && slices.ContainsFunc(found, func(f checked) bool { return !f.OK }) {
		return cli.Silent(cli.Found)
	}
	return err
}

// ignored is the verdict on an object that the watcher ignores.
const ignored = "ignored"

// check checks one object.
func (c *checking) check(ctx context.Context, grammar *annotation.Grammar, object *corev1.ConfigMap) ([]checked,
	error,
) {
	whole := checked{ConfigMap: object.Namespace + "/" + object.Name}
	request, err := grammar.ParseObject(object)
	immutable := object.Immutable != nil && *object.Immutable
	switch {
	case err != nil:
		whole.Verdict, whole.Detail = reason(v1.FailureClass_FAILURE_CLASS_INVALID_ANNOTATION), err.Error()
	case !request.Present:
		whole.OK, whole.Verdict, whole.Detail = true, ignored, "it has no annotation "+annotation.DefaultKey
	case request.Suspended:
		whole.OK, whole.Verdict, whole.Detail = true, ignored, "it is suspended"
	case object.Labels[annotation.IgnoreLabel] == annotation.IgnoreValue:
		whole.OK, whole.Verdict = true, ignored
		whole.Detail = "it has the label " + annotation.IgnoreLabel + "=" + annotation.IgnoreValue
	case annotation.Protects(c.protected, object.Namespace, object.Name):
		whole.Verdict, whole.Detail = ignored, "it is protected (--protected-namespaces)"
	case immutable:
		whole.Verdict, whole.Detail = reason(v1.FailureClass_FAILURE_CLASS_IMMUTABLE),
			"it is immutable, so no key can be written"
	default:
		return c.pairs(ctx, whole, request, object)
	}
	return []checked{whole}, nil
}

func reason(class v1.FailureClass) string { return pipeline.Reason(class) }

func (c *checking) pairs(
	ctx context.Context, whole checked, request annotation.Request, object *corev1.ConfigMap,
) ([]checked, error) {
	var found []checked
	for _, problem := range request.Problems {
		f := whole
		f.Key, f.OK, f.Detail = problem.Key, !problem.Refused, problem.Text
		f.Verdict = reason(v1.FailureClass_FAILURE_CLASS_INVALID_ANNOTATION)
		found = append(found, f)
	}
	for _, pair := range request.Pairs {
		f := whole
		f.Key, f.URL = pair.Key, deadletter.WithoutQuery(pair.URL)
		preview, err := c.fetcher.Preview(ctx, object.Namespace, pair.URL, c.fetch)
		if err != nil {
			return nil, err
		}
		f.Detail = preview.Reason
		_, inData := object.Data[pair.Key]
		_, inBinary := object.BinaryData[pair.Key]
		digest := request.SHA256[pair.Key]
		switch {
		case preview.Failure != "":
			f.Verdict = preview.Failure
		case !preview.Allowed:
			f.Verdict = reason(v1.FailureClass_FAILURE_CLASS_ADDRESS_DENIED)
		case c.file != "" && (inData || inBinary):
			f.Verdict = reason(v1.FailureClass_FAILURE_CLASS_KEY_EXISTS)
			f.Detail = "the manifest has the key, which is never overwritten"
		case c.fetch && digest != "" && digest != preview.SHA256:
			f.Verdict = reason(v1.FailureClass_FAILURE_CLASS_DIGEST_MISMATCH)
			f.Detail = "the body has sha256 " + preview.SHA256 + ", curl-sha256 requires " + digest
		case c.fetch:
			f.OK, f.Verdict, f.Detail = true, "fetched", fmt.Sprintf("%d bytes, sha256 %s", preview.Size, preview.SHA256)
		default:
			f.OK, f.Verdict = true, "would be fetched"
			if interval := request.Interval(pair.Key); interval > 0 {
				f.Verdict += " every " + duration.Format(interval)
			}
			if preview.Credential != "" {
				f.Detail += "; " + preview.Credential
			}
		}
		found = append(found, f)
	}
	return found, nil
}
