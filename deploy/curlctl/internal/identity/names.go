package identity

import (
	"strings"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/doctor"
	"github.com/kv8s/curl-me-that/proto/signature"
)

// Names of the identities of services. Those of operators are in package
// doctor.
const (
	watcher = "watcher"
	fetcher = "fetcher"
	writer  = "writer"
	// setup creates and updates streams and consumers.
	setup = "setup"
	// system is of the system account, which reports about the servers.
	system = "sys"
)

// identityNames returns all identities that deploy/nats/accounts.conf knows.
func identityNames() []string {
	return []string{watcher, fetcher, writer, setup, doctor.Viewer, doctor.Replayer, doctor.Admin, system}
}

// Names of files.
const (
	// variablesFile is the file that accounts.conf includes.
	variablesFile = "identities.conf"
	// caCert and caKey are the certificate authority of the NATS servers.
	caCert = "ca.crt"
	caKey  = "ca.key"
	// serverCert and serverKey are what the NATS servers present.
	serverCert = "tls.crt"
	serverKey  = "tls.key"
)

// seedFile returns the name of the file with the seed of an identity.
func seedFile(name string) string { return name + ".nk" }

// servers stands for the NATS servers, beside the identities.
const servers = "server"

// needed returns the files that an identity needs, or the servers.
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

// isSecret reports whether a file must be hidden from others.
func isSecret(file string) bool {
	return strings.HasSuffix(file, ".nk") || file == caKey || file == serverKey
}
