package curlctl

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/broker"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/fault"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/proto/process"
)

// RunE is the function of a cobra command.
type RunE = func(cmd *cobra.Command, args []string) error

// task is what a command does.
type task = func(ctx context.Context, s *session, args []string) error

// natsUse says how a command uses NATS.
type natsUse int

const (
	withoutNATS natsUse = iota
	// withNATS: the context of the command ends when the server denies something, or closes the connection for good.
	withNATS
	// ifNATS: likewise, but without NATS the session has no connection.
	ifNATS
	// serving: like withNATS, but a denied request only concerns a page.
	serving
)

// Run returns the function of a command.
func (o *options) Run(use natsUse, do task) RunE {
	return func(cmd *cobra.Command, args []string) error {
		if o.Namespace != "" && o.allNamespaces {
			return usagef("give either --namespace or --all-namespaces")
		}
		if err := o.Print.Validate(); err != nil {
			return usagef("%w", err)
		}
		s := &session{
			options: o, In: cmd.InOrStdin(), Out: printer.New(cmd.OutOrStdout(), o.Print),
			Stderr: printer.New(cmd.ErrOrStderr(), printer.Options{}),
		}
		defer s.Stderr.EndLine()
		if use == withoutNATS {
			return withCode(cmd.Context(), do(cmd.Context(), s, args))
		}
		conn, err := o.NATS.Open(cmd.Context(), o.Kube)
		if s.natsError = err; err != nil {
			if use == ifNATS {
				err = do(cmd.Context(), s, args)
			}
			return withCode(cmd.Context(), err)
		}
		defer conn.Close()
		s.Connection = conn
		defer s.hintUnread()
		denied := broker.AnySubject
		if use == serving {
			denied = broker.NoSubject
		}
		ctx, end := conn.Denials.CancelOnDenied(cmd.Context(), denied)
		defer end()
		err = do(ctx, s, args)
		if cause := context.Cause(ctx); errors.Is(cause, process.ErrClosed) {
			err = cause
		}
		return withCode(ctx, err)
	}
}

// session is one run of a command.
type session struct {
	*options
	// Connection is nil without NATS, which is unavailable for the reason natsError.
	*broker.Connection
	natsError error

	In io.Reader
	// Out is for the result; Stderr is for questions, progress and hints.
	Out, Stderr *printer.Printer
}

// List prints rows. If there are none, it prints the message none for people.
func (s *session) List(rows iter.Seq2[printer.Row, error], none string) error {
	n, err := s.Out.List(rows)
	if err == nil && n == 0 && none != "" && !s.Out.ForPrograms() {
		s.Hint("%s", none)
	}
	return err
}

// kubeTimeout limits reading the objects of Kubernetes.
const kubeTimeout = 10 * time.Second

// Objects reads the ConfigMaps of --namespace with a name (empty: all). On error it prints a hint, and returns nil.
func (s *session) Objects(ctx context.Context, name string) keys.Objects {
	ctx, cancel := context.WithTimeout(ctx, kubeTimeout)
	defer cancel()
	objects, err := keys.ReadObjects(ctx, s.Cluster(), s.Namespace, name)
	if err != nil {
		s.Hint("Without Kubernetes (%v), it is unknown which keys are refused or ignored.", err)
	}
	return objects
}

// Keys reads the keys of --namespace and ConfigMaps with a name (empty: all). Without NATS, it shows what the
// ConfigMaps say.
func (s *session) Keys(ctx context.Context, name string) ([]keys.Key, error) {
	if s.Connection == nil {
		objects, err := keys.ReadObjects(ctx, s.Cluster(), s.Namespace, name)
		switch {
		case errors.Is(err, context.Canceled):
			return nil, err
		case err != nil:
			_, err = fault.Of(nil, err)
			return nil, fmt.Errorf("%w, and %w", s.natsError, err)
		}
		s.Hint("Without NATS (%v), this is what the ConfigMaps say.", s.natsError)
		return objects.Keys(s.Namespace, name, s.Now()), nil
	}
	r := s.Reader(name)
	r.Objects = s.Objects(ctx, name)
	all, _, err := r.Read(ctx)
	return all, err
}

// Reader returns a reader of NATS, for --namespace and ConfigMaps with a name (empty: all).
func (s *session) Reader(name string) keys.Reader {
	return keys.Reader{Client: s.Client, Namespace: s.Namespace, Name: name, Now: s.Now()}
}

// Hint prints a line to stderr.
func (s *session) Hint(format string, args ...any) { s.Stderr.Linef(format, args...) }

// HintLoss prints a hint when the connection is lost, while requests are retried.
func (s *session) HintLoss() {
	s.Conn.SetDisconnectErrHandler(func(_ *nats.Conn, err error) {
		if err != nil { // not closed by us
			s.Hint("Lost the connection to NATS, reconnecting.")
		}
	})
}

// HintPaused prints a hint if fetching is paused.
func (s *session) HintPaused(ctx context.Context) {
	if s.Connection == nil {
		return
	}
	fetchers, err := s.Client.Fetchers(ctx)
	switch {
	case err != nil || !fetchers.Paused:
	case broker.Resumes(fetchers) != nil:
		s.Hint("Fetching is paused and resumes in %s. Requests wait until then.",
			printer.Until(s.Now(), *broker.Resumes(fetchers)))
	default:
		s.Hint("Fetching is paused. Requests wait until `curlctl resume`.")
	}
}

func (s *session) hintUnread() {
	if n, first := s.Client.Unread.Count(); n > 0 {
		s.Hint("Skipped %s, the first: %s.", printer.Plural(n, "unreadable message"), first)
	}
}

// confirmAbove is the maximum number of fetches without a confirmation prompt.
const confirmAbove = 100

// Confirm asks a question. Without a terminal the answer is no.
func (s *session) Confirm(question string, args ...any) error {
	if !printer.Terminal(s.In) {
		return errorf(fault.NotConfirmed, "nothing was done: there is no terminal to confirm (give --yes)")
	}
	s.Stderr.Textf(question+" [y/N] ", args...)
	answer, err := bufio.NewReader(s.In).ReadString('\n')
	if err == nil {
		switch strings.ToLower(strings.TrimSpace(answer)) {
		case "y", "yes":
			return nil
		}
	}
	return errorf(fault.NotConfirmed, "nothing was done: not confirmed")
}
