package curlctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/fault"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/sentence"
	"github.com/kv8s/curl-me-that/proto/status"
	watchv1 "github.com/kv8s/curl-me-that/proto/watch/v1alpha1"
)

// versioned is a key with its versions.
type versioned struct {
	pipeline.Key
	// object is nil if it does not exist, and watcher if none compiles it.
	object  *metav1.PartialObjectMetadata
	watcher *watchv1.Watcher
	// shown is what the object shows, and entry what its status says about the key.
	shown keys.Object
	entry status.Entry
	// versions, newest first. A number of a user is an index plus one.
	versions []*v1.Version
}

// openVersions reads the versions of a key. Without a name of the key, the ConfigMap must have a single one.
func openVersions(ctx context.Context, s *session, args []string) (*versioned, error) {
	k := &versioned{}
	var err error
	if k.Namespace, k.Name, err = s.ParseObject(args[0]); err != nil {
		return nil, err
	}
	if k.object, k.watcher, err = s.Cluster().Object(ctx, k.Namespace, k.Name); err != nil {
		return nil, err
	}
	if k.object == nil {
		return nil, notFound(k.Namespace, k.Name)
	}
	k.Name = k.object.Name
	k.shown = keys.ReadObject(&k.object.ObjectMeta, nil)
	ours := k.shown.Status.Keys
	switch {
	case len(args) > 1:
		k.Key.Key = args[1]
	case len(ours) == 1:
		for key := range ours {
			k.Key.Key = key
		}
	case len(ours) == 0:
		return nil, errorf(fault.NotFound, "no key of ConfigMap %s/%s was fetched or written yet: not found",
			k.Namespace, k.Name)
	default:
		return nil, usagef("%s/%s has %s, name one of them", k.Namespace, k.Name, printer.Plural(len(ours), "key"))
	}
	if other := k.shown.View(k.Key.Key).OtherAsker; other != "" {
		return nil, errors.New(sentence.KeyOfOther(k.Key.Key, other))
	}
	k.entry = ours[k.Key.Key]
	k.versions, err = s.Client.Versions(ctx, k.Key)
	return k, err
}

// state says what a version is to the key.
func (k *versioned) state(v *v1.Version) string {
	switch v.GetSha256() {
	case k.entry.SHA256:
		return "current"
	case k.entry.Available:
		return "available"
	}
	return ""
}

// find returns the digest of a version: by its number, or by the beginning of its digest.
func (k *versioned) find(text string) (string, error) {
	if n, err := strconv.Atoi(text); err == nil && len(text) < 4 {
		if n < 1 || n > len(k.versions) {
			return "", errorf(fault.NotFound, "key %s has %s in the history: version %d not found", k.Key.Key,
				printer.Plural(len(k.versions), "version"), n)
		}
		return k.versions[n-1].GetSha256(), nil
	}
	digest := ""
	for _, v := range k.versions {
		switch found := v.GetSha256(); {
		case found == digest || !strings.HasPrefix(found, strings.ToLower(text)):
		case digest != "":
			return "", usagef("several versions of key %s have a digest that begins with %s, give more of it", k.Key.Key, text)
		default:
			digest = found
		}
	}
	if digest == "" {
		return "", errorf(fault.NotFound, "no version of key %s has a digest that begins with %s: not found",
			k.Key.Key, text)
	}
	return digest, nil
}

// former returns the digest of the newest version that the key had before the current one.
func (k *versioned) former() (string, error) {
	current := slices.IndexFunc(k.versions, func(v *v1.Version) bool { return v.GetSha256() == k.entry.SHA256 })
	for _, v := range k.versions[current+1:] {
		if v.GetSha256() != k.entry.SHA256 && !v.GetAvailable() {
			return v.GetSha256(), nil
		}
	}
	return "", errorf(fault.NotFound, "the history has no earlier version of key %s: not found", k.Key.Key)
}

func historyCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:               "history NAMESPACE/NAME [KEY]",
		Short:             "Show the last contents of a key (reads Kubernetes)",
		Args:              takes(1, 2),
		ValidArgsFunction: o.completeObjects,
		RunE: o.Run(withNATS, func(ctx context.Context, s *session, args []string) error {
			k, err := openVersions(ctx, s, args)
			if err != nil {
				return err
			}
			number := 0
			rows := printer.Rows(k.versions, func(v *v1.Version) printer.Row {
				number++
				return printer.Row{Name: v.GetSha256(), Object: v, Cells: printer.Cells(
					"N", number, "SHA256", printer.Short(v.GetSha256()), "SIZE", int(v.GetSize()),
					"FETCHED", printer.Age(s.Now(), v.GetFetchedAt().AsTime()), "STATE", k.state(v), "URL", v.GetUrl(),
				)}
			})
			return s.List(rows, "The history has no version of key "+k.Key.Key+".")
		}),
	}
}

func diffCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "diff NAMESPACE/NAME KEY [A [B]]",
		Short: "Compare two contents of a key by number or digest (reads Kubernetes)",
		Long: "Without A and B it compares the current content with the one that waits for approval, or\n" +
			"else the former content with the current one.",
		Args:              takes(2, 4),
		ValidArgsFunction: o.completeObjects,
		RunE: o.Run(withNATS, func(ctx context.Context, s *session, args []string) error {
			k, err := openVersions(ctx, s, args)
			if err != nil {
				return err
			}
			from, to := k.entry.SHA256, cmp.Or(k.entry.Available, k.entry.SHA256)
			switch {
			case len(args) > 2:
				from, err = k.find(args[2])
			case k.entry.Available == "":
				from, err = k.former()
			}
			if err == nil && len(args) > 3 {
				to, err = k.find(args[3])
			}
			if err != nil {
				return err
			}
			return printDiff(ctx, s, k, from, to)
		}),
	}
}

// printDiff prints the difference of two bodies. Control characters are escaped.
func printDiff(ctx context.Context, s *session, k *versioned, from, to string) error {
	var bodies [2][]byte
	for i, digest := range []string{from, to} {
		var err error
		if bodies[i], err = s.Client.Body(ctx, k.Namespace, digest); err != nil {
			return fmt.Errorf("body %s of key %s: %w", printer.Short(digest), k.Key.Key, err)
		}
	}
	s.Out.Textf("%s", printer.Difference(bodies[0], bodies[1],
		[2]string{k.Key.Key + " " + printer.Short(from), k.Key.Key + " " + printer.Short(to)}))
	return nil
}
