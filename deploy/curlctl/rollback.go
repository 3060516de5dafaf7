package curlctl

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/fault"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/proto/annotation"
)

// pinning holds the flags of commands that change a pin.
type pinning struct {
	to        string
	now, wait bool
	timeout   time.Duration
}

// pinCommand returns a command that pins a key to the digest that choose returns (empty: to none).
func pinCommand(o *options, use, short, long string, choose func(*versioned, *pinning) (string, error)) *cobra.Command {
	p := &pinning{}
	cmd := &cobra.Command{
		Use: use + " NAMESPACE/NAME KEY", Short: short + " (reads Kubernetes, and writes with --now)",
		Long: long + "\n\nPrints the line for your manifest. --now also edits the object, with your own rights.\n" +
			"A tool that owns the manifest, such as Argo CD, Flux or Helm, would undo that.",
		Args: takes(2, 2), ValidArgsFunction: o.completeObjects,
		PreRunE: func(*cobra.Command, []string) error {
			if p.wait && !p.now {
				return usagef("--wait needs --now")
			}
			return nil
		},
	}
	cmd.RunE = o.Run(withNATS, func(ctx context.Context, s *session, args []string) error {
		k, err := openVersions(ctx, s, args)
		if err != nil {
			return err
		}
		digest, err := choose(k, p)
		if err != nil {
			return err
		}
		return p.run(ctx, s, k, digest)
	})
	cmd.Flags().BoolVar(&p.now, "now", false, "edit the object, too")
	if use != "unpin" {
		cmd.Flags().BoolVar(&p.wait, "wait", false, "with --now, wait until the key has the content")
		cmd.Flags().DurationVar(&p.timeout, "timeout", time.Minute, "maximum time of --wait")
	}
	if use == "rollback" {
		cmd.Flags().StringVar(&p.to, "to", "", "number or digest of a version (default: the former one)")
	}
	return cmd
}

func rollbackCommand(o *options) *cobra.Command {
	return pinCommand(o, "rollback", "Give a key an earlier content again",
		"Pins a key to the digest of an earlier content. The writer takes it from the history, also\n"+
			"while the server is down. Other content of the URL is only reported then, if the key has an\n"+
			"interval, and rejected otherwise.",
		func(k *versioned, p *pinning) (string, error) {
			if p.to == "" {
				return k.former()
			}
			return k.find(p.to)
		})
}

func acceptCommand(o *options) *cobra.Command {
	return pinCommand(o, "accept", "Approve the content that a pinned key waits for",
		"Pins a key to the content that UpdateAvailable reported.",
		func(k *versioned, _ *pinning) (string, error) {
			if k.entry.Available == "" {
				return "", errorf(fault.NotFound, "no content of key %s waits for approval: not found", k.Key.Key)
			}
			return k.entry.Available, nil
		})
}

func unpinCommand(o *options) *cobra.Command {
	return pinCommand(o, "unpin", "Let a key follow its URL again", "Removes the pin of a key.",
		func(*versioned, *pinning) (string, error) { return "", nil })
}

// run prints the line that pins the key, and edits the object with --now.
func (p *pinning) run(ctx context.Context, s *session, k *versioned, digest string) error {
	selects := k.shown.Request.Rules[k.Key.Key].Select != "" // no body has its digest
	if digest != "" && selects {
		return fmt.Errorf("key %s has a selection (curl-select), so it cannot be pinned to a digest", k.Key.Key)
	}
	name, value, err := pinOf(k.object, k.Key.Key, digest)
	switch {
	case err != nil:
		return err
	case k.watcher != nil && digest == "":
		s.Out.Linef("Watcher %s, source %s: remove sha256", k.watcher.Name, k.Key.Key)
	case k.watcher != nil:
		s.Out.Linef("Watcher %s, source %s:\n  sha256: %s", k.watcher.Name, k.Key.Key, digest)
	case value == "":
		s.Out.Linef("remove annotation %s", name)
	default:
		s.Out.Linef("%s: %s", name, value)
	}
	if tool := toolOf(k.object); tool != "" {
		s.Hint("%s owns this object and would restore the pin of its manifest, so commit the line there first.", tool)
	}
	if !p.now {
		return nil
	}
	if k.watcher != nil {
		err = s.Cluster().PinSource(ctx, k.watcher, k.Key.Key, digest)
	} else {
		err = s.Cluster().Annotate(ctx, k.object, name, value)
	}
	if err != nil || !p.wait {
		return err
	}
	return p.await(ctx, s, k, digest)
}

// awaitInterval is the interval between two looks at the object with --wait.
const awaitInterval = 100 * time.Millisecond

// await returns when the key has the content.
func (p *pinning) await(ctx context.Context, s *session, k *versioned, digest string) error {
	err := wait.PollUntilContextTimeout(ctx, awaitInterval, p.timeout, true, func(ctx context.Context) (bool, error) {
		object, _, err := s.Cluster().Object(ctx, k.Namespace, k.Name)
		if err != nil || object == nil {
			return false, cmp.Or(err, notFound(k.Namespace, k.Name))
		}
		entry := keys.ReadObject(&object.ObjectMeta, nil).Status.Keys[k.Key.Key]
		return entry.SHA256 == digest && !entry.Failing(), nil
	})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case wait.Interrupted(err):
		return fmt.Errorf("key %s does not have the content %s after %s", k.Key.Key, printer.Short(digest), p.timeout)
	case err == nil:
		s.Out.Linef("Key %s has the content %s.", k.Key.Key, printer.Short(digest))
	}
	return err
}

// pinOf returns the annotation of an object that pins a key to a digest (empty: to none), and leaves other pins alone.
// An empty value removes the annotation.
func pinOf(object *metav1.PartialObjectMetadata, key, digest string) (name, value string, err error) {
	grammar, err := annotation.New(annotation.Defaults())
	if err != nil {
		return "", "", err
	}
	name, value, _ = grammar.FindOption(object.Annotations, annotation.SHA256Name)
	value, err = annotation.WithPin(value, key, digest)
	return name, value, err
}

// toolOf returns the tool that owns the manifest of an object, if its field managers show one.
func toolOf(object *metav1.PartialObjectMetadata) string {
	for _, record := range object.ManagedFields {
		for manager, tool := range map[string]string{
			"argocd": "Argo CD", "kustomize-controller": "Flux", "helm-controller": "Flux", "helm": "Helm",
		} {
			if strings.HasPrefix(record.Manager, manager) && (manager != "helm" || record.Manager == "helm") {
				return tool
			}
		}
	}
	return ""
}
