package process

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/spf13/pflag"
)

// NATSFiles are files with which a program and the NATS servers authenticate each other. Each may
// be empty.
type NATSFiles struct {
	// Creds is a file with a user JWT and NKey seed.
	Creds string
	// NKey is a file with an NKey seed.
	NKey string
	// CA is a file with certificates to trust instead of the system's.
	CA string
	// Cert and Key are files for TLS client authentication.
	Cert, Key string
}

// BindFlags adds the flags of the files.
func (f *NATSFiles) BindFlags(fs *pflag.FlagSet) {
	fs.StringVar(&f.Creds, "nats-creds", "", "file with a NATS user JWT and NKey seed")
	fs.StringVar(&f.NKey, "nats-nkey", "", "file with a NATS NKey seed")
	fs.StringVar(&f.CA, "nats-ca", "", "file with the certificates to trust for NATS")
	fs.StringVar(&f.Cert, "nats-cert", "", "file with the client certificate for NATS")
	fs.StringVar(&f.Key, "nats-key", "", "file with the key of the client certificate for NATS")
}

// Validate checks the files.
func (f *NATSFiles) Validate() error {
	for flag, file := range map[string]string{
		"nats-creds": f.Creds, "nats-nkey": f.NKey, "nats-ca": f.CA, "nats-cert": f.Cert, "nats-key": f.Key,
	} {
		if _, err := os.Stat(file); file != "" && err != nil {
			return fmt.Errorf("--%s: %w (give the path of an existing file)", flag, err)
		}
	}
	if f.Creds != "" {
		contents, err := os.ReadFile(f.Creds)
		if err == nil {
			_, err = nkeys.ParseDecoratedNKey(contents)
		}
		if err != nil {
			return fmt.Errorf("--nats-creds: %w", err)
		}
	}
	if (f.Cert == "") != (f.Key == "") {
		return errors.New("--nats-cert and --nats-key must be set together")
	}
	for _, option := range f.Options() {
		if err := option(&nats.Options{}); err != nil {
			return err
		}
	}
	return nil
}

// Options returns the connection options for these files.
func (f *NATSFiles) Options() []nats.Option {
	var opts []nats.Option
	if f.Creds != "" {
		opts = append(opts, nats.UserCredentials(f.Creds))
	}
	if f.NKey != "" {
		opts = append(opts, named("nats-nkey", func(c *nats.Options) error {
			opt, err := nats.NkeyOptionFromSeed(f.NKey)
			if err != nil {
				return err
			}
			return opt(c)
		}))
	}
	if f.CA != "" {
		opts = append(opts, named("nats-ca", nats.RootCAs(f.CA)))
	}
	if f.Cert != "" {
		opts = append(opts, named("nats-cert", nats.ClientCert(f.Cert, f.Key)))
	}
	return opts
}

// named names the flag in the error of an option.
func named(flag string, option nats.Option) nats.Option {
	return func(o *nats.Options) error {
		if err := option(o); err != nil {
			return fmt.Errorf("--%s: %w", flag, err)
		}
		return nil
	}
}

// credentials matches a server address up to its userinfo.
var credentials = regexp.MustCompile(`(?s)^(.*?://)?.*@`)

// RedactServers returns comma-separated server addresses without credentials.
func RedactServers(servers string) string {
	parts := strings.Split(servers, ",")
	for i, server := range parts {
		parts[i] = credentials.ReplaceAllString(strings.TrimSpace(server), "$1")
	}
	return strings.Join(parts, ",")
}
