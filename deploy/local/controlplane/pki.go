package controlplane

import (
	"os"
	"path/filepath"

	"k8s.io/client-go/util/keyutil"
)

// createPKI writes all certificates and keys of a control plane, or none: it
// fills a folder beside the final one and renames that.
func createPKI(d dataDir, hosts ...string) error {
	scratch := d.path(pkiDir + ".new")
	if err := os.RemoveAll(scratch); err != nil {
		return err
	}
	if err := os.Mkdir(scratch, 0o700); err != nil {
		return err
	}
	files, err := newPKI(hosts...)
	if err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(scratch, name), content, 0o600); err != nil {
			return err
		}
	}
	return os.Rename(scratch, d.path(pkiDir))
}

// newPKI returns the content of each file by its name. The API server is known
// by the hosts, too.
func newPKI(hosts ...string) (map[string][]byte, error) {
	certificate, key, err := (&authority{}).issue(authorityTemplate())
	if err != nil {
		return nil, err
	}
	ca, err := parseAuthority(certificate, key)
	if err != nil {
		return nil, err
	}
	serving, servingPrivate, err := ca.issue(servingTemplate(hosts...))
	if err != nil {
		return nil, err
	}
	tokens, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		authorityCert:     certificate,
		authorityKey:      key,
		servingCert:       serving,
		servingKey:        servingPrivate,
		serviceAccountKey: tokens,
	}, nil
}
