// Package cli has the parts that all commands share: flags, the session with NATS, exit codes and completion.
package cli

import (
	"context"
	"iter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cluster"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/natsconn"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
	"github.com/kv8s/curl-me-that/proto/process/kube"
)

// Options are the flags of all commands.
type Options struct {
	NATS      natsconn.Options
	Print     printer.Options
	Kube      kube.Options
	Namespace string
	// Now is the clock.
	Now func() time.Time

	allNamespaces bool
}

// BindFlags adds the flags.
func (o *Options) BindFlags(cmd *cobra.Command) {
	fs := cmd.PersistentFlags()
	o.NATS.BindFlags(fs)
	o.Print.BindFlags(fs)
	o.Kube.BindUserFlags(fs)
	fs.StringVarP(&o.Namespace, "namespace", "n", "", "only this namespace (default: all)")
	fs.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "all namespaces, the default")
	Complete(cmd, "output", cobra.FixedCompletions(printer.Formats(), Silently))
	Complete(cmd, "context", completeContexts)
	Complete(cmd, "namespace", o.CompleteNamespaces)
}

// BindName adds the flag --name.
func (o *Options) BindName(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "name", "", "only ConfigMaps with this name")
	Complete(cmd, "name", o.CompleteNames)
}

// BindHost adds the flag --host.
func (o *Options) BindHost(cmd *cobra.Command, host *string) {
	cmd.Flags().StringVar(host, "host", "", "only this host")
	Complete(cmd, "host", o.CompleteHosts)
}

// Cluster returns a reader of the cluster.
func (o *Options) Cluster() *cluster.Reader { return &cluster.Reader{Options: o.Kube, Now: o.Now} }

// RunE is the function of a cobra command.
type RunE = func(cmd *cobra.Command, args []string) error

// Offline returns the function of a command without NATS.
func (o *Options) Offline(do func(cmd *cobra.Command, out *printer.Printer, args []string) error) RunE {
	return func(cmd *cobra.Command, args []string) error {
		if err := o.Print.Validate(); err != nil {
			return Usagef("%w", err)
		}
		return withCode(cmd.Context(), do(cmd, printer.New(cmd.OutOrStdout(), o.Print), args))
	}
}

// Run returns the function of a command with NATS. Its context ends when the server denies something.
func (o *Options) Run(do func(ctx context.Context, s *Session, args []string) error) RunE {
	return o.Offline(func(cmd *cobra.Command, out *printer.Printer, args []string) error {
		if o.Namespace != "" && o.allNamespaces {
			return Usagef("give either --namespace or --all-namespaces")
		}
		conn, err := o.NATS.Open()
		if err != nil {
			return err
		}
		defer conn.Close()
		ctx, end := conn.Refusals.CancelOnDenied(cmd.Context())
		defer end()
		s := &Session{
			Connection: conn, Options: o, Out: out, Aside: printer.New(cmd.ErrOrStderr(), printer.Options{}),
			cmd: cmd, args: args,
		}
		defer s.hintUnread()
		return withCode(ctx, do(ctx, s, args))
	})
}

// Session is one run of a command with a connection to NATS.
type Session struct {
	*natsconn.Connection
	*Options
	// Out is for the result; Aside is for questions, progress and hints.
	Out, Aside *printer.Printer

	cmd  *cobra.Command
	args []string
}

// List prints rows. If there are none, it prints the message none for people.
func (s *Session) List(table printer.Table, rows iter.Seq2[printer.Row, error], none string) error {
	n, err := s.Out.List(table, rows)
	if err == nil && n == 0 && !s.Out.ForPrograms() {
		s.Hint("%s", none)
	}
	return err
}

// kubeTimeout limits reading the objects of Kubernetes.
const kubeTimeout = 10 * time.Second

// Objects reads the ConfigMaps of --namespace with a name (empty: all). On error it prints a hint, and returns nil.
func (s *Session) Objects(ctx context.Context, name string) keys.Objects {
	ctx, cancel := context.WithTimeout(ctx, kubeTimeout)
	defer cancel()
	objects, err := s.Cluster().Objects(ctx, s.Namespace, name)
	if err != nil {
		s.Hint("Without Kubernetes (%v), it is unknown which keys are refused or ignored.", err)
	}
	return objects
}

// Keys reads the keys of --namespace and ConfigMaps with a name (empty: all).
func (s *Session) Keys(ctx context.Context, name string) ([]keys.Key, error) {
	r := s.Reader(name)
	r.Objects = s.Objects(ctx, name)
	all, _, err := r.Read(ctx)
	return all, err
}

// Reader returns a reader of NATS, for --namespace and ConfigMaps with a name (empty: all).
func (s *Session) Reader(name string) keys.Reader {
	return keys.Reader{Client: s.Client, Namespace: s.Namespace, Name: name, Now: s.Now()}
}

// Hint prints a line to stderr.
func (s *Session) Hint(format string, args ...any) { s.Aside.Linef(format, args...) }

// HintLoss prints a hint when the connection is lost, while requests are retried.
func (s *Session) HintLoss() {
	s.Conn.SetDisconnectErrHandler(func(_ *nats.Conn, err error) {
		if err != nil { // not closed by us
			s.Hint("Lost the connection to NATS, reconnecting.")
		}
	})
}

// HintPaused prints a hint if fetching is paused.
func (s *Session) HintPaused(ctx context.Context) {
	fetchers, err := s.Client.Fetchers(ctx)
	switch {
	case err != nil || !fetchers.Paused:
	case operate.Resumes(fetchers) != nil:
		s.Hint("Fetching is paused and resumes in %s. Requests wait until then.",
			printer.Until(s.Now(), *operate.Resumes(fetchers)))
	default:
		s.Hint("Fetching is paused. Requests wait until `curlctl resume`.")
	}
}

func (s *Session) hintUnread() {
	if n, first := s.Client.Unread.Count(); n > 0 {
		s.Hint("Skipped %s, the first: %s.", printer.Plural(n, "unreadable message"), first)
	}
}
