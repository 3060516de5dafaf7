package cli

import (
	"bufio"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
)

// NoArgs refuses arguments, and suggests similar commands.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2 // as in cobra
	if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
		return Usagef("%s has no command %q, did you mean %s?", cmd.CommandPath(), args[0], strings.Join(similar, " or "))
	}
	return Usagef("%s does not accept %q; see `%s --help`", cmd.CommandPath(), args[0], cmd.CommandPath())
}

// ExactlyOne requires exactly one argument, described by what.
func ExactlyOne(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return Usagef("%s needs %s; see `%s --help`", cmd.CommandPath(), what, cmd.CommandPath())
		}
		return nil
	}
}

// Object parses NAMESPACE/NAME, or NAME with --namespace.
func (o *Options) Object(arg string) (namespace, name string, err error) {
	namespace, name, found := strings.Cut(arg, "/")
	if !found {
		namespace, name = o.Namespace, arg
	}
	if namespace == "" || name == "" || strings.Contains(name, "/") {
		return "", "", Usagef("%q is not of the form NAMESPACE/NAME", arg)
	}
	return namespace, name, nil
}

// FailureIDs parses IDs as lists print them: 12, or failure/12.
func FailureIDs(args []string) ([]uint64, error) {
	var ids []uint64
	for _, arg := range args {
		id, err := strconv.ParseUint(strings.TrimPrefix(arg, "failure/"), 10, 64)
		if err != nil || id == 0 {
			return nil, Usagef("%q is not the ID of a failure (`curlctl failures` lists them)", arg)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// ConfirmAbove is the maximum number of fetches without a confirmation prompt.
const ConfirmAbove = 100

// Confirm asks a question. Without a terminal the answer is no.
func (s *Session) Confirm(question string, args ...any) error {
	if !printer.Terminal(s.cmd.InOrStdin()) {
		return Errorf(NotConfirmed, "nothing was done: there is no terminal to confirm (give --yes)")
	}
	s.Aside.Textf(question+" [y/N] ", args...)
	answer, err := bufio.NewReader(s.cmd.InOrStdin()).ReadString('\n')
	if err == nil {
		switch strings.ToLower(strings.TrimSpace(answer)) {
		case "y", "yes":
			return nil
		}
	}
	return Errorf(NotConfirmed, "nothing was done: not confirmed")
}
