package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
)

// healthcheckTimeout is shorter than the timeout in docker-compose.yaml.
const healthcheckTimeout = 3 * time.Second

func newHealthcheck() *cobra.Command {
	var kubeconfig, server string
	cmd := command("healthcheck --kubeconfig FILE",
		"Exit with 1 if an API server is not ready", "",
		func(cmd *cobra.Command) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), healthcheckTimeout)
			defer cancel()
			config, err := controlplane.Load(kubeconfig, "")
			if err != nil {
				return err
			}
			if server != "" {
				config = controlplane.At(config, server)
			}
			client, err := controlplane.ClientConfig(config)
			if err != nil {
				return err
			}
			return controlplane.Ready(ctx, client)
		})
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of a user who may read the namespace default")
	cmd.Flags().StringVar(&server, "server", "", "URL of the API server (default: that of the kubeconfig)")
	return cmd
}

// grant holds the flags of the command.
type grant struct {
	kubeconfig, context, server string
	nats                        string
	manifests, copies           []string
	accounts, files             map[string]string
}

func newGrant() *cobra.Command {
	var g grant
	cmd := command("grant --kubeconfig FILE --manifests DIR --account NAMESPACE/NAME=FILE",
		"Apply manifests, and write a kubeconfig with a token for each service account",
		`Apply all manifests of the folders, and write a kubeconfig with a token for each
service account. Copies of the administrator's kubeconfig are for services in containers,
so login plugins are an error. Each file gets the owner of its folder.`, g.run)
	flags := cmd.Flags()
	flags.StringVar(&g.kubeconfig, "kubeconfig", "", "kubeconfig of the administrator")
	flags.StringVar(&g.context, "context", "", "its context (default: the current one)")
	flags.StringSliceVar(&g.manifests, "manifests", nil, "folders with manifests to apply")
	flags.StringToStringVar(&g.accounts, "account", nil,
		"service account, and the file for its kubeconfig: NAMESPACE/NAME=FILE")
	flags.StringSliceVar(&g.copies, "copy-to", nil, "files for copies of the administrator's kubeconfig")
	flags.StringVar(&g.server, "copy-server", "", "URL of the API server in those copies")
	flags.StringVar(&g.nats, "nats-url", "", "address of NATS, written for curlctl to a file beside each copy")
	flags.StringToStringVar(&g.files, "copy-file", nil, "other files to copy: FILE=COPY")
	return cmd
}

func (g *grant) run(cmd *cobra.Command) error {
	if info, err := os.Stat(g.kubeconfig); err != nil || !info.Mode().IsRegular() {
		return errors.New("--kubeconfig: not a file: set KUBECONFIG to the absolute path of a kubeconfig")
	}
	administrator, err := controlplane.Load(g.kubeconfig, g.context)
	if err != nil {
		return err
	}
	config, err := controlplane.ClientConfig(administrator)
	if err != nil {
		return err
	}
	applied, err := controlplane.Apply(cmd.Context(), config, g.manifests)
	for _, object := range applied {
		fmt.Fprintln(cmd.OutOrStdout(), "applied", object)
	}
	if err != nil {
		return err
	}
	for account, path := range g.accounts {
		namespace, name, found := strings.Cut(account, "/")
		if !found {
			return fmt.Errorf("--account: %q is not NAMESPACE/NAME=FILE", account)
		}
		own, err := controlplane.Account(cmd.Context(), administrator, namespace, name)
		if err != nil {
			return err
		}
		if err := controlplane.Write(own, path); err != nil {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout(), "wrote the kubeconfig of service account", account)
	}
	if g.server != "" {
		administrator = controlplane.At(administrator, g.server)
	}
	for _, path := range g.copies {
		if err := controlplane.Write(administrator, path); err != nil {
			return err
		}
		if g.nats != "" {
			if err := controlplane.WriteNATS(g.nats, path); err != nil {
				return err
			}
		}
		fmt.Fprintf(cmd.OutOrStdout(), "copied context %s to %s\n", administrator.CurrentContext, path)
	}
	for path, to := range g.files {
		text, err := os.ReadFile(path)
		if err == nil {
			err = controlplane.WriteFile(text, to)
		}
		if err != nil {
			return fmt.Errorf("--copy-file: %w", err)
		}
	}
	return nil
}

func newPrepare() *cobra.Command {
	var dir, host, probe string
	cmd := command("prepare --dir DIR --host NAME",
		"Write the certificate and keys of a kube-apiserver that runs elsewhere",
		`Write certificate, keys and the administrator's kubeconfig for a kube-apiserver
that runs elsewhere, such as in a container. Existing files are kept. With --probe, also
copy this program into DIR, for the health check of an image without a shell.`,
		func(*cobra.Command) error {
			if dir == "" || host == "" {
				return errors.New("prepare needs --dir and --host")
			}
			err := controlplane.Prepare(dir, host)
			if err == nil && probe != "" {
				err = copyProgram(filepath.Join(dir, probe))
			}
			return err
		})
	cmd.Flags().StringVar(&dir, "dir", "", "folder for pki/ and kubeconfig")
	cmd.Flags().StringVar(&host, "host", "", "name by which clients reach the API server")
	cmd.Flags().StringVar(&probe, "probe", "", "name in DIR for a copy of this program")
	return cmd
}

// copyProgram copies this program and then renames the copy, so that nobody runs an incomplete one.
func copyProgram(path string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		return fmt.Errorf("read this program: %w", err)
	}
	//nolint:gosec // a program without secrets, for the user of another container
	if err := os.WriteFile(path+".new", program, 0o755); err != nil {
		return fmt.Errorf("copy this program: %w", err)
	}
	return os.Rename(path+".new", path)
}
