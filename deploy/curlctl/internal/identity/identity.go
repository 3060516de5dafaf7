// Package identity makes the NKeys of services and operators, and the certificate of the NATS servers. It keeps
// existing ones, and may run at any time, even concurrently.
package identity

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nkeys"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/keyutil"

	"github.com/kv8s/curl-me-that/deploy/curlctl/broker"
	"github.com/kv8s/curl-me-that/proto/signature"
)

// ErrUnusable means that an existing file is invalid. It is never overwritten.
var ErrUnusable = errors.New("cannot be used")

// Files maps a file name to its content.
type Files map[string][]byte

// Store keeps files.
type Store interface {
	// Update replaces the files with the result of change, which may be called again after a race with another
	// process.
	Update(ctx context.Context, change func(Files) (Files, error)) error
	// Where returns the location of a file, as shown to users.
	Where(file string) string
}

// Item is the result for one identity or certificate.
type Item struct {
	Name string `json:"name"`
	// PublicKey of an identity.
	PublicKey string `json:"publicKey,omitempty"`
	// State is made, renewed or kept.
	State string `json:"state"`
	Where string `json:"where"`
	// NotAfter is the expiry of a certificate.
	NotAfter time.Time `json:"notAfter,omitzero"`
}

// States of an Item.
const (
	made    = "made"
	renewed = "renewed"
	kept    = "kept"
)

// Options select what to make in addition to the identities.
type Options struct {
	// Hosts of the server certificate, checked by ValidateHosts (empty: no certificate).
	Hosts []string
	Now   time.Time
	// RevokeSigning replaces the signing key, and removes all trusted ones.
	RevokeSigning bool
}

// Ensure makes missing identities, and returns all files. Errors wrap ErrUnusable if an existing file is invalid.
func Ensure(ctx context.Context, store Store, o Options) (files Files, items []Item, err error) {
	err = store.Update(ctx, func(have Files) (Files, error) {
		files, items, err = complete(have, o, store.Where)
		return files, err
	})
	return files, items, err
}

// HandOut copies the files of one identity, or of the servers, to another store. It fails if that store has a
// file of another identity.
func HandOut(ctx context.Context, all Files, name string, to Store) error {
	return to.Update(ctx, func(have Files) (Files, error) {
		files := Files{}
		for file := range have {
			if !slices.Contains(needed(name), file) {
				return nil, fmt.Errorf("%s does not belong to %s (remove it, or choose another directory)", to.Where(file), name)
			}
		}
		for _, file := range needed(name) {
			if content, exists := all[file]; exists {
				files[file] = content
			}
		}
		return files, nil
	})
}

// ValidateNames rejects names that HandOut does not know.
func ValidateNames(names iter.Seq[string]) error {
	for name := range names {
		if name != servers && !slices.Contains(identityNames(), name) {
			return fmt.Errorf("%q is not one of %s, %s", name, servers, strings.Join(identityNames(), ", "))
		}
	}
	return nil
}

// ValidateHosts rejects hosts that a certificate cannot have.
func ValidateHosts(hosts []string) error {
	for _, host := range hosts {
		wrong := validation.IsDNS1123Subdomain(host)
		if strings.HasPrefix(host, "*.") {
			wrong = validation.IsWildcardDNS1123Subdomain(host)
		}
		if net.ParseIP(host) == nil && len(wrong) > 0 {
			return fmt.Errorf("%q is neither a host name nor an IP address", host)
		}
	}
	return nil
}

// complete adds missing files. It replaces existing keys only to renew a certificate or after a revocation.
func complete(have Files, o Options, where func(string) string) (Files, []Item, error) {
	files, keys := maps.Clone(have), map[string]string{}
	if o.RevokeSigning {
		delete(files, signature.SeedFile)
		delete(files, signature.KeysFile)
	}
	var items []Item
	for _, name := range append(identityNames(), signing) {
		item, err := seed(files, seedFile(name), where)
		if err != nil {
			return nil, nil, err
		}
		item.Name, keys[name] = name, item.PublicKey
		items = append(items, item)
	}
	files[signature.KeysFile] = trusted(keys[signing], files[signature.KeysFile])
	files[variablesFile] = variables(keys)
	if len(o.Hosts) == 0 {
		return files, items, nil
	}
	certified, err := certify(files, o.Hosts, o.Now, where)
	return files, append(items, certified...), err
}

// seed adds a seed if it is missing.
func seed(files Files, file string, where func(string) string) (Item, error) {
	item := Item{State: kept, Where: where(file)}
	var err error
	if _, exists := files[file]; !exists {
		item.State = made
		files[file], err = newSeed()
	}
	if err == nil {
		item.PublicKey, err = publicKey(files[file])
	}
	if err != nil {
		return Item{}, fmt.Errorf("read %s: %w", where(file), err)
	}
	return item, nil
}

// trusted lists the signing key in use, and then the previous one, whose signatures may still be in flight.
func trusted(inUse string, have []byte) []byte {
	keys := []string{inUse}
	for key := range strings.FieldsSeq(string(have)) {
		if key != inUse && len(keys) < signature.MaxKeys {
			keys = append(keys, key)
		}
	}
	return []byte(strings.Join(keys, "\n") + "\n")
}

// certify adds or renews the files for TLS.
func certify(files Files, hosts []string, now time.Time, where func(string) string) ([]Item, error) {
	ca, item, err := authority(files, now)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", where(caCert), err)
	}
	item.Where, item.NotAfter = where(caCert), ca.Leaf.NotAfter
	server := Item{Name: "tls", State: kept, Where: where(serverCert)}
	if !fits(ca, files[serverCert], files[serverKey], hosts, now) {
		server.State = made
		if files[serverCert] != nil {
			server.State = renewed
		}
		if files[serverCert], files[serverKey], err = newServer(ca, hosts, now); err != nil {
			return nil, err
		}
	}
	pair, err := parse(files[serverCert], files[serverKey])
	if err != nil {
		return nil, err
	}
	server.NotAfter = pair.Leaf.NotAfter
	return []Item{item, server}, nil
}

// authority returns the certificate authority, and makes it if it is missing.
func authority(files Files, now time.Time) (ca *tls.Certificate, item Item, err error) {
	item = Item{Name: "ca", State: kept}
	if files[caCert] == nil {
		item.State = made
		if files[caKey] == nil { // else it is left from an interrupted run
			files[caKey], err = keyutil.MakeEllipticPrivateKeyPEM()
		}
		if err == nil {
			files[caCert], err = newAuthority(files[caKey], now)
		}
	}
	if err == nil {
		ca, err = parse(files[caCert], files[caKey])
	}
	if err == nil && !now.Before(ca.Leaf.NotAfter) {
		err = fmt.Errorf("it expired on %s (remove it and its key to get a new one): %w",
			ca.Leaf.NotAfter.Format(time.DateOnly), ErrUnusable)
	}
	return ca, item, err
}

// Names of the identities of services. Package broker has the names for operators.
const (
	watcher = "watcher"
	fetcher = "fetcher"
	writer  = "writer"
	// setup creates and updates streams and consumers.
	setup = "setup"
	// system is the user of the system account.
	system = "sys"
	// servers are the NATS servers, and signing is the signing key. They are not NATS users.
	servers = "server"
	signing = "signing"
)

// identityNames returns the identities of deploy/nats/accounts.conf.
func identityNames() []string {
	return []string{watcher, fetcher, writer, setup, broker.Viewer, broker.Replayer, broker.Admin, system}
}

// Names of files.
const (
	// accounts.conf includes variablesFile.
	variablesFile = "identities.conf"
	// caCert and caKey are the certificate authority.
	caCert = "ca.crt"
	caKey  = "ca.key"
	// serverCert and serverKey belong to the NATS servers.
	serverCert = "tls.crt"
	serverKey  = "tls.key"
)

// seedFile returns the name of the file with a seed.
func seedFile(name string) string {
	if name == signing {
		return signature.SeedFile
	}
	return name + ".nk"
}

// needed returns the files of an identity, or of the servers.
func needed(name string) []string {
	switch name {
	case servers:
		return []string{variablesFile, caCert, serverCert, serverKey}
	case watcher:
		return []string{seedFile(name), caCert, signature.SeedFile}
	case fetcher, writer:
		return []string{seedFile(name), caCert, signature.KeysFile}
	}
	return []string{seedFile(name), caCert}
}

// allFiles returns all files in the order of writing. A file follows the files that it is derived from, so that
// an interrupted run can be repeated.
func allFiles() []string {
	var files []string
	for _, name := range append(identityNames(), signing) {
		files = append(files, seedFile(name))
	}
	return append(files, signature.KeysFile, caKey, caCert, serverKey, serverCert, variablesFile)
}

// newSeed returns a new seed.
func newSeed() ([]byte, error) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		return nil, fmt.Errorf("make NKey: %w", err)
	}
	defer pair.Wipe()
	seed, err := pair.Seed()
	return append(bytes.Clone(seed), '\n'), err
}

// publicKey returns the public key of a seed.
func publicKey(seed []byte) (string, error) {
	pair, err := nkeys.FromSeed(bytes.TrimSpace(seed))
	if err != nil {
		return "", fmt.Errorf("it holds no NKey seed: %w", ErrUnusable)
	}
	defer pair.Wipe()
	public, err := pair.PublicKey()
	if err != nil || !nkeys.IsValidPublicUserKey(public) {
		return "", fmt.Errorf("it holds no seed of a user: %w", ErrUnusable)
	}
	return public, nil
}

// variables returns the content of identities.conf: the public key of each identity.
func variables(keys map[string]string) []byte {
	var b bytes.Buffer
	b.WriteString("# Made by `curlctl identities`: the public key of each identity of accounts.conf.\n")
	for _, name := range identityNames() {
		fmt.Fprintf(&b, "NKEY_%s: %q\n", strings.ToUpper(name), keys[name])
	}
	return b.Bytes()
}

const (
	// caLifetime and serverLifetime are the validity of certificates. The server certificate is renewed in its
	// last third.
	caLifetime     = 10 * 365 * 24 * time.Hour
	serverLifetime = 2 * 365 * 24 * time.Hour
	// backdated is the tolerance for clocks that are behind.
	backdated = 5 * time.Minute
	// maxCommonName is RFC 5280's ub-common-name.
	maxCommonName = 64
)

// newAuthority returns a self-signed CA certificate for a key.
func newAuthority(key []byte, now time.Time) ([]byte, error) {
	return sign(&x509.Certificate{
		Subject:               pkix.Name{CommonName: "curl-me-that NATS CA"},
		NotAfter:              now.Add(caLifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}, key, nil, now)
}

// newServer returns a new server certificate for hosts, with its key.
func newServer(ca *tls.Certificate, hosts []string, now time.Time) (cert, key []byte, err error) {
	template := &x509.Certificate{
		Subject:  pkix.Name{CommonName: hosts[0]},
		NotAfter: now.Add(serverLifetime),
		KeyUsage: x509.KeyUsageDigitalSignature,
		// A server of a cluster is also a client of the others.
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if len(hosts[0]) > maxCommonName {
		template.Subject.CommonName = "nats"
	}
	if ca.Leaf.NotAfter.Before(template.NotAfter) {
		template.NotAfter = ca.Leaf.NotAfter
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	if key, err = keyutil.MakeEllipticPrivateKeyPEM(); err == nil {
		cert, err = sign(template, key, ca, now)
	}
	return cert, key, err
}

// sign makes a certificate for a key. Without an authority it is self-signed.
func sign(template *x509.Certificate, key []byte, by *tls.Certificate, now time.Time) ([]byte, error) {
	parsed, err := keyutil.ParsePrivateKeyPEM(key)
	secret, ok := parsed.(crypto.Signer)
	if err != nil || !ok {
		return nil, fmt.Errorf("its key is invalid: %w", ErrUnusable)
	}
	template.NotBefore = now.Add(-backdated)
	parent, signer := template, parsed
	if by != nil {
		parent, signer = by.Leaf, by.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, secret.Public(), signer)
	if err != nil {
		return nil, fmt.Errorf("make certificate: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// parse decodes a certificate and its key.
func parse(cert, key []byte) (*tls.Certificate, error) {
	if block, _ := pem.Decode(cert); block == nil || block.Type != "CERTIFICATE" {
		return nil, fmt.Errorf("it holds no certificate: %w", ErrUnusable)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("its certificate or key is invalid: %w (%w)", ErrUnusable, err)
	}
	return &pair, nil
}

// fits reports whether a server certificate is signed by the authority, valid for exactly these hosts, and not
// due for renewal.
func fits(ca *tls.Certificate, cert, key []byte, hosts []string, now time.Time) bool {
	pair, err := parse(cert, key)
	if err != nil || pair.Leaf.CheckSignatureFrom(ca.Leaf) != nil {
		return false
	}
	have := pair.Leaf
	life := have.NotAfter.Sub(have.NotBefore)
	if have.NotAfter.Sub(now) < life/3 && have.NotAfter.Before(ca.Leaf.NotAfter) {
		return false
	}
	denied := func(host string) bool { return have.VerifyHostname(host) != nil }
	return len(hosts) == len(have.DNSNames)+len(have.IPAddresses) && !slices.ContainsFunc(hosts, denied)
}
