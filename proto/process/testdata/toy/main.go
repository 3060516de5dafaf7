// Command toy is a service that does nothing, for the tests of package process.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/proto/process"
)

func main() {
	var options process.Options
	var greeting string
	var count int
	var stubborn bool
	cmd := &cobra.Command{
		Use:  "toy",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Println("greeting:", greeting)
			if stubborn {
				fmt.Fprintln(os.Stderr, "stubborn")
				<-cmd.Context().Done()
				fmt.Fprintln(os.Stderr, "draining")
				select {}
			}
			return options.Run(cmd.Context(), "toy", func(ctx context.Context, rt *process.Runtime) error {
				rt.Started()
				<-ctx.Done()
				return nil
			})
		},
	}
	options.BindFlags(cmd.Flags(), "")
	cmd.Flags().StringVar(&greeting, "greeting", "none", "what to print")
	cmd.Flags().IntVar(&count, "count", 1, "how often")
	cmd.Flags().BoolVar(&stubborn, "stubborn", false, "do not end when asked to")
	os.Exit(process.Execute(cmd))
}
