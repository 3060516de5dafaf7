package curlctl

import (
	"context"
	"io"
	"iter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/natsconn"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/operator"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/readable"
)

// options are the flags that all commands have.
type options struct {
	nats      natsconn.Options
	print     printer.Options
	namespace string
	all       bool
	// now is the clock.
	now func() time.Time
}

// session is one run of a command with a connection to NATS.
type session struct {
	*natsconn.Connection
	*options
	out *printer.Printer
	// aside is for what is not the result: questions, progress and hints.
	aside *printer.Printer
	in    io.Reader

	// unread counts the messages that were left out as they cannot be read.
	unread readable.Unread
}

// offline returns what runs a command without NATS.
func (o *options) offline(do func(cmd *cobra.Command, out *printer.Printer, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := o.print.Validate(); err != nil {
			return usagef("%w", err)
		}
		return coded(cmd.Context(), do(cmd, printer.New(cmd.OutOrStdout(), o.print), args))
	}
}

// run returns what runs a command in a session.
func (o *options) run(do func(ctx context.Context, s *session, args []string) error) func(*cobra.Command, []string) error {
	return o.offline(func(cmd *cobra.Command, out *printer.Printer, args []string) error {
		if o.namespace != "" && o.all {
			return usagef("give either --namespace or --all-namespaces")
		}
		conn, ctx, err := o.nats.Open(cmd.Context())
		if err != nil {
			return err
		}
		defer conn.Close()
		s := &session{Connection: conn, options: o, out: out, aside: printer.New(cmd.ErrOrStderr(), printer.Options{}), in: cmd.InOrStdin()}
		defer s.hintUnread()
		return coded(ctx, do(ctx, s, args))
	})
}

// hintLoss reports when the connection is lost while something is asked for
// again and again until there is an answer.
func (s *session) hintLoss() {
	s.Conn.SetDisconnectErrHandler(func(_ *nats.Conn, err error) {
		if err != nil { // and not closed by us
			s.hint("The connection to NATS is lost; waiting for it to come back.")
		}
	})
}

// list prints rows, and for people, where there are none, a line that states so.
func (s *session) list(columns []printer.Column, rows iter.Seq2[printer.Row, error], none string) error {
	n, err := s.out.List(columns, rows)
	if err == nil && n == 0 && !s.out.ForPrograms() {
		s.hint("%s", none)
	}
	return err
}

// hint prints a line beside the result.
func (s *session) hint(format string, args ...any) { s.aside.Linef(format, args...) }

// hintUnread reports what was left out.
func (s *session) hintUnread() {
	if n, first := s.unread.Count(); n > 0 {
		s.hint("Left out what cannot be read: %s, the first: %s.", printer.Plural(n, "message"), first)
	}
}

// audit begins the record of what is about to be done; see operator.Begin.
func (s *session) audit(ctx context.Context, action, filter string, selected int) (end func(context.Context, int, int) error, err error) {
	return operator.Begin(ctx, s.Connection, operator.Action{Name: action, Filter: filter, Selected: selected, Via: operator.CLI}, s.now)
}
