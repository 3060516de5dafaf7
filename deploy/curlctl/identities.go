package curlctl

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cluster"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/identity"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/proto/service/kube"
)

// identities holds the flags of the command.
type identities struct {
	cluster   kube.Options
	dir, mode string
	namespace string
	prefix    string
	hosts     []string
	revoke    bool
	// shares are directories by the name of who gets them.
	shares map[string]string
}

func identitiesCommand(o *options) *cobra.Command {
	c := &identities{}
	cmd := &cobra.Command{
		Use:   "identities --out DIR | --secrets NAMESPACE",
		Short: "Make the NKeys of services and operators, and the certificate of NATS (writes files, or Secrets)",
		Long: "Makes an NKey for each identity that deploy/nats/accounts.conf knows, and the file\n" +
			"identities.conf with their public keys for NATS. With --tls-host it also makes a\n" +
			"certificate authority and a certificate of the NATS servers, and renews the latter\n" +
			"when a third of its time is left or the hosts are others. What exists is kept: call\n" +
			"it as often as you like; remove a key and call it to have a new one. It needs no NATS.",
		Args: noArgs,
	}
	cmd.RunE = o.offline(func(cmd *cobra.Command, out *printer.Printer, _ []string) error {
		return c.run(cmd.Context(), out, o.now())
	})
	fs := cmd.Flags()
	c.cluster.BindUserFlags(fs)
	fs.StringVar(&c.dir, "out", "", "directory for <identity>.nk, identities.conf, ca.crt, ca.key, tls.crt and tls.key")
	fs.StringVar(&c.mode, "mode", "0600", "mode of the files with secrets, in octal; 0640 for another user of the group")
	fs.StringVar(&c.namespace, "secrets", "", "namespace for the Secrets <prefix>-nats-<identity>, <prefix>-nats-server and <prefix>-nats-ca")
	fs.StringVar(&c.prefix, "prefix", "curl-me-that", "what the names of Secrets begin with")
	fs.StringSliceVar(&c.hosts, "tls-host", nil, "names and addresses by which clients and routes reach NATS; without any, there is no certificate")
	fs.BoolVar(&c.revoke, "revoke-signing-key", false, "after a theft: make a new key of signatures, and let writer and fetchers trust no earlier one")
	fs.StringToStringVar(&c.shares, "for", nil, "directories that get what one identity needs and nothing else, such as watcher=DIR,server=DIR; needs --out")
	_ = cmd.MarkFlagDirname("out")
	return cmd
}

func (c *identities) run(ctx context.Context, out *printer.Printer, now time.Time) error {
	if err := identity.ValidateHosts(c.hosts); err != nil {
		return usagef("--tls-host: %w", err)
	}
	if err := c.validateShares(); err != nil {
		return err
	}
	store, closeStore, err := c.store()
	if err != nil {
		return err
	}
	defer closeStore()
	items, err := identity.Ensure(ctx, store, identity.Wanted{Hosts: c.hosts, Now: now, RevokeSigning: c.revoke})
	if err != nil {
		return c.explained(err)
	}
	if err := c.handOut(ctx, store); err != nil {
		return err
	}
	return printIdentities(out, items)
}

func (c *identities) validateShares() error {
	if len(c.shares) > 0 && c.dir == "" {
		return usagef("--for needs --out: Secrets are apart already")
	}
	if err := identity.ValidateNames(maps.Keys(c.shares)); err != nil {
		return usagef("--for: %w", err)
	}
	return nil
}

// handOut gives each its share of what is in a store.
func (c *identities) handOut(ctx context.Context, from identity.Store) error {
	for name, dir := range c.shares {
		to, err := c.in(dir)
		if err != nil {
			return err
		}
		if err := identity.HandOut(ctx, from, name, to); err != nil {
			return fmt.Errorf("hand out to %s: %w", name, err)
		}
	}
	return nil
}

// in returns a directory to put files into.
func (c *identities) in(dir string) (identity.Store, error) {
	mode, err := strconv.ParseUint(c.mode, 8, 32)
	if err != nil || mode&^0o666 != 0 || mode&0o600 != 0o600 {
		return nil, usagef("--mode: %q is not a mode such as 0600, 0640 or 0644", c.mode)
	}
	return identity.Dir{Path: dir, Mode: fs.FileMode(mode)}, nil
}

// store returns where to put what is made, and what ends its connections.
func (c *identities) store() (identity.Store, func(), error) {
	switch {
	case (c.dir == "") == (c.namespace == ""):
		return nil, nil, usagef("identities needs either --out DIR or --secrets NAMESPACE")
	case c.dir != "":
		store, err := c.in(c.dir)
		return store, func() {}, err
	}
	config, err := cluster.Config(c.cluster)
	if err != nil {
		return nil, nil, err
	}
	config.QPS = -1
	web, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, nil, fmt.Errorf("use kubeconfig: %w", err)
	}
	client, err := corev1client.NewForConfigAndClient(config, web)
	if err != nil {
		return nil, nil, fmt.Errorf("use kubeconfig: %w", err)
	}
	store := &identity.Secrets{Client: client.Secrets(c.namespace), Namespace: c.namespace, Prefix: c.prefix}
	return store, func() { utilnet.CloseIdleConnectionsFor(web.Transport) }, nil
}

// explained gives the error of the API server, or of its absence, an exit code.
func (c *identities) explained(err error) error {
	_, gotResponse := errors.AsType[*apierrors.StatusError](err)
	switch {
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return exitf(exitPermission, "%w", err)
	case apierrors.IsNotFound(err):
		return exitf(exitNotFound, "%w", err)
	case c.namespace != "" && !gotResponse && !errors.Is(err, identity.ErrUnusable):
		return noCluster(err)
	}
	return err
}

func printIdentities(out *printer.Printer, items []identity.Item) error {
	columns := printer.Columns("IDENTITY", "STATE", "PUBLIC KEY OR VALID UNTIL", "WHERE")
	_, err := out.List(columns, printer.Rows(items, func(i identity.Item) printer.Row {
		detail := i.PublicKey
		if i.NotAfter != nil {
			detail = i.NotAfter.UTC().Format(time.DateOnly)
		}
		return printer.Row{Name: "identity/" + i.Name, Object: i, Cells: []printer.Cell{
			printer.Text(i.Name), printer.Text(i.State), printer.Text(detail), printer.Text(i.Where),
		}}
	}))
	return err
}
