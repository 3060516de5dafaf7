package curlctl

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cluster"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/identity"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
	"github.com/kv8s/curl-me-that/proto/kube"
)

// identities holds the flags.
type identities struct {
	dir       string
	namespace string
	prefix    string
	hosts     []string
	revoke    bool
	// shares maps an identity to its directory.
	shares map[string]string
}

// identitiesCommand returns the command identities.
func identitiesCommand(o *options) *cobra.Command {
	c := &identities{}
	cmd := &cobra.Command{
		Use:   "identities --out DIR | --secrets NAMESPACE",
		Short: "Make the NKeys of services and operators, and the certificate of NATS (writes files, or Secrets)",
		Long: "Makes an NKey for each identity of deploy/nats/accounts.conf, and identities.conf with the\n" +
			"public keys for NATS. With --tls-host it also makes a certificate authority and a server\n" +
			"certificate, which it renews in the last third of its validity or for other hosts. It keeps\n" +
			"existing keys, so it is safe to run it again. To replace a key, remove it first. It needs\n" +
			"no NATS.",
		Args: noArgs,
	}
	cmd.RunE = o.Run(withoutNATS, c.run)
	fs := cmd.Flags()
	fs.StringVar(&c.dir, "out", "", "directory for <identity>.nk, identities.conf, ca.crt, ca.key, tls.crt and tls.key")
	fs.StringVar(&c.namespace, "secrets", "",
		"namespace for the Secrets <prefix>-nats-<identity>, <prefix>-nats-server and <prefix>-nats-ca")
	fs.StringVar(&c.prefix, "prefix", "curl-me-that", "prefix of the names of Secrets")
	fs.StringSliceVar(&c.hosts, "tls-host", nil, "host names and IP addresses of the server certificate")
	fs.BoolVar(&c.revoke, "revoke-signing-key", false, "replace a compromised signing key, and trust no earlier one")
	fs.StringToStringVar(&c.shares, "for", nil,
		"directories for the files of single identities, such as watcher=DIR,server=DIR (with --out)")
	_ = cmd.MarkFlagDirname("out")
	return cmd
}

func (c *identities) run(ctx context.Context, s *session, _ []string) error {
	if err := c.validate(); err != nil {
		return err
	}
	store, done, err := c.store(s.Kube)
	if err != nil {
		return err
	}
	defer done()
	options := identity.Options{Hosts: c.hosts, Now: s.Now(), RevokeSigning: c.revoke}
	files, items, err := identity.Ensure(ctx, store, options)
	if err != nil {
		return err
	}
	if err := c.handOut(ctx, files); err != nil {
		return err
	}
	_, err = s.Out.List(printer.Rows(items, func(i identity.Item) printer.Row {
		detail := i.PublicKey
		if !i.NotAfter.IsZero() {
			detail = i.NotAfter.UTC().Format(time.DateOnly)
		}
		return printer.Row{Name: "identity/" + i.Name, Object: i, Cells: printer.Cells(
			"IDENTITY", i.Name, "STATE", i.State, "PUBLIC KEY OR VALID UNTIL", detail, "WHERE", i.Where,
		)}
	}))
	return err
}

func (c *identities) validate() error {
	if err := identity.ValidateHosts(c.hosts); err != nil {
		return usagef("--tls-host: %w", err)
	}
	if len(c.shares) > 0 && c.dir == "" {
		return usagef("--for needs --out")
	}
	if err := identity.ValidateNames(maps.Keys(c.shares)); err != nil {
		return usagef("--for: %w", err)
	}
	if (c.dir == "") == (c.namespace == "") {
		return usagef("identities needs either --out DIR or --secrets NAMESPACE")
	}
	return nil
}

// handOut copies the files of single identities.
func (c *identities) handOut(ctx context.Context, files identity.Files) error {
	for _, name := range slices.Sorted(maps.Keys(c.shares)) {
		if err := identity.HandOut(ctx, files, name, identity.Dir(c.shares[name])); err != nil {
			return fmt.Errorf("hand out to %s: %w", name, err)
		}
	}
	return nil
}

// store returns the store of the identities, and a function that closes it.
func (c *identities) store(kubernetes kube.Options) (store identity.Store, done func(), err error) {
	if c.dir != "" {
		return identity.Dir(c.dir), func() {}, nil
	}
	clients, done, err := cluster.Open(kubernetes, 0)
	if err != nil {
		return nil, nil, &cluster.Error{Operation: "write Secrets", Err: err}
	}
	secrets := clients.Core.Secrets(c.namespace)
	return &identity.Secrets{Client: secrets, Namespace: c.namespace, Prefix: c.prefix}, done, nil
}
