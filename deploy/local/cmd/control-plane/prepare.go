package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/local/controlplane"
)

func newPrepare() *cobra.Command {
	var plane controlplane.External
	var probe string
	command := &cobra.Command{
		Use:   "prepare --dir DIR --host NAME",
		Short: "Write the certificates and keys of a kube-apiserver that runs elsewhere",
		Long: `Write certificates, keys and the administrator's kubeconfig for a kube-apiserver
that runs elsewhere, such as in a container. What is there is kept. With --probe,
also put a copy of this program into DIR, for the health check of an image that has
no program to ask with.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if plane.Dir == "" || plane.Host == "" {
				return errors.New("prepare needs --dir and --host")
			}
			if err := plane.Prepare(); err != nil {
				return err
			}
			if probe == "" {
				return nil
			}
			return copyProgram(filepath.Join(plane.Dir, probe))
		},
	}
	command.Flags().StringVar(&plane.Dir, "dir", "", "folder for pki/ and kubeconfig")
	command.Flags().StringVar(&plane.Host, "host", "", "name by which clients reach the API server")
	command.Flags().StringVar(&plane.Port, "port", "6443", "port of the API server")
	command.Flags().StringVar(&probe, "probe", "", "name in DIR for a copy of this program")
	return command
}

// copyProgram copies this program, by a rename, so that half of it is never run.
func copyProgram(path string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	source, err := os.Open(self)
	if err != nil {
		return fmt.Errorf("read this program: %w", err)
	}
	defer source.Close()
	target, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755) //nolint:gosec // a program without secrets, for the user of another container
	if err != nil {
		return fmt.Errorf("copy this program: %w", err)
	}
	_, err = io.Copy(target, source)
	if err = errors.Join(err, target.Close()); err != nil {
		return fmt.Errorf("copy this program: %w", err)
	}
	return os.Rename(path+".new", path)
}
