package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/local/controlplane/assets"
)

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "control-plane",
		Short:         "Run a real etcd and kube-apiserver on this machine, or give programs access to another one",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newExec(), newAssets(), newPrepare(), newGrant(), newAdopt(), newHealthcheck())
	return root
}

func newAssets() *cobra.Command {
	options := assets.Options{Kubectl: true}
	command := &cobra.Command{
		Use:   "assets",
		Short: "Print the folder of etcd, kube-apiserver and kubectl, which it downloads or builds if needed",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options.Progress = cmd.ErrOrStderr()
			binaries, err := assets.Find(cmd.Context(), options)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), binaries.Dir)
			return err
		},
	}
	command.Flags().BoolVar(&options.Build, "build", false, "build from source, without KUBEBUILDER_ASSETS and archives of envtest")
	return command
}
