package curlctl

import (
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
)

func clock(at *time.Time) string {
	if at == nil {
		return ""
	}
	return printer.Clock(*at)
}

// failureLink returns the id of another failure, or nothing.
func failureLink(id uint64) printer.Cell {
	if id == 0 {
		return printer.Text("")
	}
	return printer.Text("failure " + strconv.FormatUint(id, 10))
}

func exactlyOne(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usagef("%s needs %s; see `%s --help`", cmd.CommandPath(), what, cmd.CommandPath())
		}
		return nil
	}
}
