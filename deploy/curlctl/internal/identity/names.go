package identity

import "strings"

// Names of the identities of services. Those of operators are in package
// doctor.
const (
	Watcher = "watcher"
	Fetcher = "fetcher"
	Writer  = "writer"
	// Setup creates and updates streams and consumers.
	Setup = "setup"
	// System is of the system account, which reports about the servers.
	System = "sys"
)

// Names returns all identities that deploy/nats/accounts.conf knows.
func Names() []string {
	return []string{Watcher, Fetcher, Writer, Setup, "viewer", "replayer", "admin", System}
}

// Names of files.
const (
	// Variables is the file that accounts.conf includes.
	Variables = "identities.conf"
	// CACert and CAKey are the certificate authority of the NATS servers.
	CACert = "ca.crt"
	CAKey  = "ca.key"
	// ServerCert and ServerKey are what the NATS servers printer.
	ServerCert = "tls.crt"
	ServerKey  = "tls.key"
)

// SigningSeed is the file with the seed by which the watcher signs wants, and
// SigningKeys that with the public keys which writer and fetchers trust: the one of the
// seed, and the one before it.
const (
	SigningSeed = "signing.nk"
	SigningKeys = "signing.pub"
)

// SeedFile returns the name of the file with the seed of an identity.
func SeedFile(name string) string { return name + ".nk" }

// Server stands for the NATS servers, beside the identities.
const Server = "server"

// needed returns the files that an identity needs, or Server.
func needed(name string) []string {
	switch name {
	case Server:
		return []string{Variables, CACert, ServerCert, ServerKey}
	case Watcher:
		return []string{SeedFile(name), CACert, SigningSeed}
	case Fetcher, Writer:
		return []string{SeedFile(name), CACert, SigningKeys}
	}
	return []string{SeedFile(name), CACert}
}

// isSecret reports whether a file must be hidden from others.
func isSecret(file string) bool {
	return strings.HasSuffix(file, ".nk") || file == CAKey || file == ServerKey
}
