package service

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Settings are what may be chosen about a command.
type Settings interface {
	// BindFlags adds their flags.
	BindFlags(fs *pflag.FlagSet)
	// Validate returns the first thing that is wrong, as a sentence.
	Validate() error
}

// NewCommand returns cmd with the flags of the settings, as one that takes no
// arguments and runs once the settings are valid.
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
