package identity

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/nats-io/nkeys"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/doctor"
	"github.com/kv8s/curl-me-that/proto/signature"
)

// Names of the identities of services. Package doctor has the names for operators.
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
	return []string{watcher, fetcher, writer, setup, doctor.Viewer, doctor.Replayer, doctor.Admin, system}
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

// newSeed returns a new seed and its public key.
func newSeed() (seed []byte, public string, err error) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		return nil, "", fmt.Errorf("make NKey: %w", err)
	}
	defer pair.Wipe()
	if seed, err = pair.Seed(); err != nil {
		return nil, "", fmt.Errorf("make NKey: %w", err)
	}
	public, err = pair.PublicKey()
	return append(bytes.Clone(seed), '\n'), public, err
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
