package get

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"slices"

	"golang.org/x/net/http/httpguts"

	"github.com/kv8s/curl-me-that/proto/process/reload"
)

// maxToken is the maximum size of a token, in bytes.
const maxToken = 16 << 10

// openSecret follows a file with a secret, such as a projected service account token.
func openSecret(path string) (*reload.File[string], error) { return reload.Open(path, parseSecret) }

func parseSecret(content []byte) (string, error) {
	secret := string(bytes.TrimSpace(content))
	if !isToken(secret) {
		return "", errors.New("not a secret of 1 to 16384 bytes without control characters")
	}
	return secret, nil
}

func isToken(s string) bool {
	return s != "" && len(s) <= maxToken && httpguts.ValidHeaderFieldValue(s)
}

// clientIdentity is the TLS configuration of one entry. It is immutable.
type clientIdentity struct {
	// Certificates are shown to the server. None means that the client stays anonymous.
	Certificates []tls.Certificate
	// Roots are the only trusted authorities (nil means those of the client).
	Roots *x509.CertPool
}

// newIdentity parses PEM. Empty parts are skipped.
func newIdentity(certificate, key, authorities []byte) (*clientIdentity, error) {
	id := &clientIdentity{}
	if len(certificate)+len(key) > 0 {
		pair, err := tls.X509KeyPair(certificate, key)
		if err != nil {
			// The error may describe the key.
			return nil, errors.New("not a PEM certificate with its key")
		}
		id.Certificates = []tls.Certificate{pair}
	}
	if len(authorities) > 0 {
		if id.Roots = x509.NewCertPool(); !id.Roots.AppendCertsFromPEM(authorities) {
			return nil, errors.New("no PEM certificate of an authority")
		}
	}
	return id, nil
}

// openIdentity follows the files of a clientIdentity. Empty paths are skipped.
func openIdentity(certificate, key, authorities string) (*reload.File[*clientIdentity], error) {
	paths := slices.DeleteFunc([]string{certificate, key, authorities}, func(path string) bool { return path == "" })
	return reload.OpenAll(paths, func(content [][]byte) (*clientIdentity, error) {
		next := func(path string) (part []byte) {
			if path != "" {
				part, content = content[0], content[1:]
			}
			return part
		}
		return newIdentity(next(certificate), next(key), next(authorities))
	})
}
