package process

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Settings are the settings of a command.
type Settings interface {
	// BindFlags adds the flags.
	BindFlags(fs *pflag.FlagSet)
	// Validate returns the first invalid setting, as a sentence.
	Validate() error
}

// NewCommand adds the flags of the settings to cmd, which takes no arguments and runs if the
// settings are valid.
func NewCommand(cmd *cobra.Command, s Settings, run func(ctx context.Context) error) *cobra.Command {
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := s.Validate(); err != nil {
			return err
		}
		return run(cmd.Context())
	}
	s.BindFlags(cmd.Flags())
	return cmd
}
