package curlctl

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cluster"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/doctor"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/fault"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/keystate"
)

// doctorCommand returns the command doctor.
func doctorCommand(o *options) *cobra.Command {
	var release string
	var read []string
	cmd := &cobra.Command{
		Use: "doctor",
		Short: "Check connection, permissions, clock, streams, consumers and timers, or rights in Kubernetes, and " +
			"print fixes",
		Args: noArgs,
	}
	inNATS := o.Run(withNATS, func(ctx context.Context, s *session, _ []string) error {
		reads := annotation.Defaults()
		reads.Keys = read
		grammar, err := annotation.New(reads)
		if err != nil {
			return usagef("%w", err)
		}
		findings, err := doctor.Examine(ctx, s.Connection, s.Now)
		if err == nil {
			findings = append(findings, others(ctx, s, grammar)...)
		}
		return exitWith(s.Out, findings, err)
	})
	inKubernetes := o.Run(withoutNATS, func(ctx context.Context, s *session, _ []string) error {
		namespace, name, found := strings.Cut(release, "/")
		if !found || namespace == "" || name == "" {
			return usagef("--kubernetes=%s is not of the form NAMESPACE/RELEASE", release)
		}
		config, err := o.Kube.UserConfig()
		if err != nil {
			return &cluster.Error{Operation: "review rights", Err: err}
		}
		findings, err := doctor.Rights(ctx, config, doctor.Release{Namespace: namespace, Name: name}, o.Namespace)
		return exitWith(s.Out, findings, err)
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("kubernetes") {
			return inKubernetes(cmd, args)
		}
		return inNATS(cmd, args)
	}
	const installed = "curl-me-that/curl-me-that"
	cmd.Flags().StringVar(&release, "kubernetes", installed,
		"review the rights of the service accounts of this NAMESPACE/RELEASE instead, without NATS")
	cmd.Flags().StringSliceVar(&read, "annotation-keys", annotation.Defaults().Keys,
		"annotations that the installation reads, to find the keys of others")
	cmd.Flags().Lookup("kubernetes").NoOptDefVal = installed
	return cmd
}

// others returns a finding for each annotation that asked for keys of other installations than the one with this
// grammar. Without Kubernetes there are none.
func others(ctx context.Context, s *session, grammar *annotation.Grammar) (findings []doctor.Finding) {
	found := map[string][]string{}
	_ = s.Cluster().EachConfigMap(ctx, s.Namespace, "", func(object *metav1.PartialObjectMetadata) {
		others := keystate.ReadMetadata(grammar, &object.ObjectMeta).Others
		others.Problem = nil // which is about no key
		for key, asker := range others.Askers() {
			found[asker] = append(found[asker], object.Namespace+"/"+object.Name+"/"+key)
		}
	})
	for _, asker := range slices.Sorted(maps.Keys(found)) {
		slices.Sort(found[asker])
		findings = append(findings, doctor.Finding{
			Check: "other keys", State: doctor.Warning,
			Detail: printer.Plural(len(found[asker]), "key") + " of annotation " + asker + ", which stay as they are: " +
				strings.Join(found[asker][:min(len(found[asker]), maxOthers)], ", "),
			Fix: "if no installation reads it, run `curlctl hand-over --from " + asker + " --to " + grammar.Keys()[0] + "`",
		})
	}
	return findings
}

// maxOthers is the maximum number of listed keys per annotation.
const maxOthers = 10

// exitWith prints findings. If one is bad, it returns the exit code.
func exitWith(out *printer.Printer, findings []doctor.Finding, err error) error {
	if err == nil {
		err = printFindings(out, findings)
	}
	if err == nil && slices.ContainsFunc(findings, func(f doctor.Finding) bool { return f.State == doctor.Bad }) {
		return silent(fault.ProblemFound)
	}
	return err
}

func printFindings(out *printer.Printer, findings []doctor.Finding) error {
	if out.ForPrograms() {
		_, err := out.List(printer.Rows(findings, doctor.Finding.Row))
		return err
	}
	width := 0
	for _, f := range findings {
		width = max(width, len(f.Check))
	}
	for _, f := range findings {
		out.Linef("%-*s  %-7s  %s", width, f.Check, f.State, f.Detail)
		if f.Fix != "" {
			out.Linef("%*sTo fix it: %s", width+11, "", f.Fix)
		}
	}
	return nil
}
