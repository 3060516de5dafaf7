package curlctl

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/status"
)

// handOverCommand returns the command hand-over.
func handOverCommand(o *options) *cobra.Command {
	var from, to string
	cmd := &cobra.Command{
		Use:   "hand-over --from ANNOTATION --to ANNOTATION [NAMESPACE/NAME]",
		Short: "Give keys to the installation that reads another annotation (writes curl-status)",
		Long: "After a change of --annotation-keys, keys that the former annotation asked for stay as they\n" +
			"are. This gives them to the installation that reads the annotation --to, in one ConfigMap,\n" +
			"in --namespace, or in all. It keeps those that this annotation names up to date, and\n" +
			"removes the others. It needs no NATS.",
		Args:              takes(0, 1),
		ValidArgsFunction: o.completeObjects,
	}
	cmd.RunE = o.Run(withoutNATS, func(ctx context.Context, s *session, args []string) error {
		namespace, name, err := o.Namespace, "", error(nil)
		if len(args) > 0 {
			namespace, name, err = o.ParseObject(args[0])
		}
		if err != nil {
			return err
		}
		if _, err := annotation.New(annotation.Options{Keys: []string{from, to}, DefaultScheme: "https"}); err != nil {
			return usagef("--from and --to must be two annotations: %w", err)
		}
		handed := 0
		listed := o.Cluster().EachConfigMap(ctx, namespace, name, func(object *metav1.PartialObjectMetadata) {
			state, _ := status.Parse(object.Annotations[annotation.StatusKey]) // an unreadable one counts as empty
			found := 0
			for key, entry := range state.Keys {
				if entry.Annotation == annotation.NameInStatus(from) {
					entry.Annotation, found = to, found+1
					state.Keys[key] = entry
				}
			}
			if found == 0 || err != nil {
				return
			}
			if err = o.Cluster().Annotate(ctx, object, annotation.StatusKey, state.String()); err == nil {
				handed += found
			}
		})
		if err = cmp.Or(listed, err); err == nil || handed > 0 {
			s.Out.Linef("Handed over %s.", printer.Plural(handed, "key"))
		}
		return err
	})
	cmd.Flags().StringVar(&from, "from", "", "annotation that asked for the keys")
	cmd.Flags().StringVar(&to, "to", "", "annotation that asks for them from now on")
	return cmd
}
