package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/local/controlplane/access"
)

func newAdopt() *cobra.Command {
	var kubeconfig, context string
	var copies []string
	command := &cobra.Command{
		Use:   "adopt --kubeconfig FILE --to FILE",
		Short: "Copy a kubeconfig from outside a container to where services read it",
		Long: `Copy the current context of a kubeconfig to where services in containers read it.
A file belongs to the owner of its folder. It reports what cannot work in a container.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(copies) == 0 {
				return errors.New("adopt needs --kubeconfig and --to")
			}
			if info, err := os.Stat(kubeconfig); err != nil || !info.Mode().IsRegular() {
				return errors.New("there is no kubeconfig: let KUBECONFIG name one file, by its absolute path")
			}
			config, err := access.Load(kubeconfig, context)
			if err != nil {
				return err
			}
			for _, path := range copies {
				if err := access.Write(config, path); err != nil {
					return err
				}
			}
			fmt.Fprintln(cmd.OutOrStdout(), "adopted context", config.CurrentContext)
			return nil
		},
	}
	command.Flags().StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig to copy")
	command.Flags().StringVar(&context, "context", "", "its context; without it the current one")
	command.Flags().StringSliceVar(&copies, "to", nil, "files to write")
	return command
}
