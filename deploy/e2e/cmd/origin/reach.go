package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/reach"
)

// reachCommand is for tests of NetworkPolicies, which run it in a pod.
func reachCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "reach HOST:PORT | " + reach.DNS + "HOST:PORT ...",
		Short: "Print as JSON which addresses can be reached from here",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, addresses []string) error {
			if err := json.NewEncoder(cmd.OutOrStdout()).Encode(reach.All(cmd.Context(), addresses)); err != nil {
				return fmt.Errorf("print: %w", err)
			}
			return nil
		},
	}
}
