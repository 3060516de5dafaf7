package rule

import (
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"slices"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

const (
	// certsFunction returns the certificates of a text in PEM.
	certsFunction = "certs"
	// maxCertificates is the maximum number of certificates in a text, and maxCertificate the maximum size of one
	// in bytes, because nothing interrupts its parser.
	maxCertificates, maxCertificate = 1000, 64 << 10
	// certificateSteps is the number of steps per byte of a text. Long names take the most.
	certificateSteps = 2

	beginCertificate, endCertificate = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
	// blanks may follow a line.
	blanks = " \t\r"
)

var (
	errNotCertificates = errors.New("not certificates")
	errBadCertificate  = errors.New("bad certificate")
)

// certs returns the certificates of a text in PEM. It accepts only lines that all readers of PEM understand: some
// skip what they do not, so a certificate after a byte order mark would be lost.
func (m *meter) certs(args ...ref.Val) ref.Val {
	text, isText := args[0].(types.String)
	if !isText {
		if _, isBytes := args[0].(types.Bytes); isBytes { // not UTF-8, such as DER
			return types.WrapErr(errNotCertificates)
		}
		return types.MaybeNoSuchOverloadErr(args[0])
	}
	m.left -= certificateSteps * len(text)
	all := []any{}
	for rest := string(text); rest != ""; {
		line, after, _ := strings.Cut(rest, "\n")
		if line = strings.TrimRight(line, blanks); line == "" {
			rest = after
			continue
		} else if line != beginCertificate {
			return types.WrapErr(errNotCertificates)
		}
		block, after, found := strings.Cut(after, "\n"+endCertificate)
		line, rest, _ = strings.Cut(after, "\n")
		if !found || strings.TrimRight(line, blanks) != "" {
			return types.WrapErr(errBadCertificate)
		}
		if len(all) == maxCertificates || len(block) > maxCertificate/3*4 {
			m.left = -1
		}
		if m.exceeded() {
			return errExceeded
		}
		certificate, err := parseCertificate(block)
		if err != nil {
			return types.WrapErr(errBadCertificate)
		}
		all = append(all, certificate)
	}
	return types.DefaultTypeAdapter.NativeToValue(all)
}

// parseCertificate returns the fields of a certificate in base64.
func parseCertificate(text string) (map[string]any, error) {
	der, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, err
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(der)
	return map[string]any{
		"subject": distinguished(c.Subject), "issuer": distinguished(c.Issuer),
		"notBefore": c.NotBefore, "notAfter": c.NotAfter,
		"isCA": c.BasicConstraintsValid && c.IsCA, "sha256": hex.EncodeToString(sum[:]),
	}, nil
}

// distinguished returns a name as in RFC 2253, such as CN=a,O=b. The method String of a whole name takes quadratic
// time.
func distinguished(name pkix.Name) string {
	parts := make([]string, 0, len(name.Names))
	for _, part := range slices.Backward(name.Names) {
		parts = append(parts, pkix.RDNSequence{{part}}.String())
	}
	return strings.Join(parts, ",")
}
