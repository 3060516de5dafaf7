// Command curl-me-that runs the whole system in one process.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl"
	"github.com/kv8s/curl-me-that/deploy/local"
	"github.com/kv8s/curl-me-that/deploy/local/demo"
	"github.com/kv8s/curl-me-that/proto/process"
)

func main() { os.Exit(process.Execute(command())) }

func command() *cobra.Command {
	c := local.DefaultConfig()
	cmd := process.NewCommand(&cobra.Command{
		Use:   "curl-me-that",
		Short: "Keep ConfigMaps in sync with URLs: all services in one process",
		Long: `Runs watcher, fetcher, writer and NATS in one process, with the cluster of
--kubeconfig or $KUBECONFIG. Without a cluster, it starts a real etcd and kube-apiserver
from the folder KUBEBUILDER_ASSETS.`,
	}, &c, func(ctx context.Context) error {
		return local.Run(ctx, c, os.Stderr, func(_ context.Context, s local.System) error {
			fmt.Fprintf(os.Stderr, "Ready. The cluster's kubeconfig is %s\n", s.Kubeconfig)
			if s.NATS == "" {
				fmt.Fprintln(os.Stderr, "curlctl cannot reach this NATS. Restart with --nats-listen 127.0.0.1:4222 to use it.")
				return nil
			}
			fmt.Fprintf(os.Stderr, "NATS is at %s\n", s.NATS)
			return nil
		})
	})
	cmd.AddCommand(demoCommand(), operatorCommand())
	return cmd
}

func demoCommand() *cobra.Command {
	c := local.DefaultConfig()
	d := demo.Config{Out: os.Stdout}
	cmd := process.NewCommand(&cobra.Command{
		Use:   "demo",
		Short: "Watch keys fill, fail and recover",
	}, &c, func(ctx context.Context) error { return demo.Run(ctx, d, c) })
	for flag, value := range map[string]string{
		"data-dir": "", "nats-listen": "127.0.0.1:0",
		"allow-cidr": "127.0.0.0/8,::1/128", "log-level": "error",
	} {
		if f := cmd.Flags().Lookup(flag); f.Value.Set(value) == nil {
			f.DefValue = value
		}
	}
	cmd.Flags().StringVar(&d.Samples, "samples", "deploy/samples", "folder with the sample ConfigMaps")
	cmd.Flags().BoolVar(&d.Once, "once", false, "end after the last chapter")
	cmd.Flags().StringVar(&d.Host, "host", "localhost",
		"name where the web servers of the demo listen and fetchers reach them")
	cmd.Flags().StringVar(&d.Program, "program", os.Args[0], "how you start this program, for the printed commands")
	cmd.Flags().StringVar(&d.Console, "console", "",
		"with --installed and --once, the command that opens the console (default: that of this program)")
	cmd.Flags().BoolVar(&d.Installed, "installed", false,
		"start nothing: use the installation in the cluster, with the NATS of CURLMETHAT_NATS_URL")
	return cmd
}

// operatorCommand returns curlctl as a subcommand, so that one program is enough to try everything.
func operatorCommand() *cobra.Command {
	cmd := curlctl.Command("ctl")
	cmd.Use = "ctl"
	return cmd
}
