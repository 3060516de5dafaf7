package get

import (
	"crypto/x509"
	"errors"
	"fmt"
)

// parseBundle returns the system's roots and the certificates of a bundle.
func parseBundle(pem []byte) (*x509.CertPool, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("load the system's certificates: %w", err)
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("no PEM certificate in it")
	}
	return pool, nil
}
