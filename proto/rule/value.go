package rule

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"google.golang.org/protobuf/types/known/structpb"
)

// maxNesting is the maximum nesting of JSON.
const maxNesting = 100

var errJSON = errors.New("not JSON")

// decode returns the JSON value of a body, or an error value. It reads tokens, because integers stay
// integers and the nesting is bounded.
func decode(body []byte) ref.Val {
	d := jsontext.NewDecoder(bytes.NewBuffer(body), jsontext.AllowDuplicateNames(true))
	value, err := decodeNext(d)
	if err == nil {
		_, err = d.ReadToken()
	}
	if !errors.Is(err, io.EOF) { // an incomplete value gives another error
		return types.WrapErr(errJSON)
	}
	return types.DefaultTypeAdapter.NativeToValue(value)
}

func decodeNext(d *jsontext.Decoder) (any, error) {
	token, err := d.ReadToken()
	if err != nil || d.StackDepth() > maxNesting {
		return nil, errJSON
	}
	switch token.Kind() {
	case '{':
		object := map[string]any{}
		for d.PeekKind() == '"' {
			name, _ := d.ReadToken()
			key := name.String()
			if object[key], err = decodeNext(d); err != nil {
				return nil, err
			}
		}
		_, err = d.ReadToken()
		return object, err
	case '[':
		list := []any{}
		for d.PeekKind() != ']' {
			value, err := decodeNext(d)
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
		_, err = d.ReadToken()
		return list, err
	case '"':
		return token.String(), nil
	case 't', 'f':
		return token.Bool(), nil
	case 'n':
		return nil, nil
	}
	text := token.String()
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, nil
	}
	return strconv.ParseFloat(text, 64)
}

// asNull encodes the null of CEL, which would otherwise become the number 0.
var asNull = json.WithMarshalers(json.MarshalToFunc( //nolint:gochecknoglobals // immutable
	func(e *jsontext.Encoder, _ structpb.NullValue) error { return e.WriteToken(jsontext.Null) }))

// encode returns the bytes of a selection: text unchanged, and anything else as JSON.
func (m *meter) encode(v ref.Val) (text []byte, cause Cause) {
	defer func() {
		if recover() != nil { // the key of a map is a list or a map, which package types cannot convert
			text, cause = nil, Inapplicable
		}
	}()
	switch v := v.(type) {
	case types.String:
		text = []byte(v)
	case types.Bytes:
		text = v
	default:
		// A small value may repeat a large part many times.
		m.left = MaxBody
		if !m.weigh(v, 1) {
			return nil, TooLarge
		}
		native, err := v.ConvertToNative(reflect.TypeFor[any]())
		if err == nil {
			text, err = json.Marshal(native, json.Deterministic(true), asNull)
		}
		if err != nil {
			return nil, Inapplicable
		}
	}
	if len(text) > MaxBody {
		return nil, TooLarge
	}
	return text, Passed
}

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
		line = strings.TrimRight(line, blanks)
		if line == "" {
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
