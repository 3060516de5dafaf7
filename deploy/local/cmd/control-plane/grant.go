package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kv8s/curl-me-that/deploy/local/controlplane/access"
)

// grant holds the flags of the command.
type grant struct {
	kubeconfig string
	manifests  []string
	accounts   map[string]string
	copyTo     string
	server     string
}

func newGrant() *cobra.Command {
	var g grant
	command := &cobra.Command{
		Use:   "grant --kubeconfig FILE --manifests DIR --account NAMESPACE/NAME=FILE",
		Short: "Apply manifests, and write a kubeconfig with a token for each service account",
		Long: `Apply all manifests of the folders, and write a kubeconfig with a token of its own
for each service account. A file belongs to the owner of its folder.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return g.run(cmd) },
	}
	flags := command.Flags()
	flags.StringVar(&g.kubeconfig, "kubeconfig", "", "kubeconfig of the administrator")
	flags.StringSliceVar(&g.manifests, "manifests", nil, "folders with manifests to apply")
	flags.StringToStringVar(&g.accounts, "account", nil, "service account, and the file for its kubeconfig: NAMESPACE/NAME=FILE")
	flags.StringVar(&g.copyTo, "copy-to", "", "file for a copy of the administrator's kubeconfig")
	flags.StringVar(&g.server, "copy-server", "", "URL of the API server in that copy")
	return command
}

func (g *grant) run(cmd *cobra.Command) error {
	if g.kubeconfig == "" {
		return errors.New("grant needs --kubeconfig")
	}
	administrator, err := access.Load(g.kubeconfig, "")
	if err != nil {
		return err
	}
	config, err := access.ClientConfig(administrator)
	if err != nil {
		return err
	}
	applied, err := access.Apply(cmd.Context(), config, g.manifests)
	for _, what := range applied {
		fmt.Fprintln(cmd.OutOrStdout(), "applied", what)
	}
	if err != nil {
		return err
	}
	for account, path := range g.accounts {
		if err := writeAccount(cmd.Context(), administrator, account, path); err != nil {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout(), "wrote the kubeconfig of service account", account)
	}
	if g.copyTo == "" {
		return nil
	}
	if g.server != "" {
		administrator = access.At(administrator, g.server)
	}
	return access.Write(administrator, g.copyTo)
}

func writeAccount(ctx context.Context, administrator *clientcmdapi.Config, account, path string) error {
	namespace, name, found := strings.Cut(account, "/")
	if !found {
		return fmt.Errorf("--account: %q is not NAMESPACE/NAME=FILE", account)
	}
	config, err := access.Account(ctx, administrator, namespace, name)
	if err != nil {
		return err
	}
	return access.Write(config, path)
}
