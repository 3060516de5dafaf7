package credentials_test

import (
	"cmp"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/watcher/keeper/internal/credentials"
)

const hidden = "s3cr3t"

// secret returns a labelled Secret. All have the same age, so the first by name takes precedence.
func secret(name, hosts string, data map[string]string) corev1.Secret {
	s := corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team-a", Name: name, Labels: map[string]string{credentials.TeamLabel: "true"},
		Annotations: map[string]string{credentials.HostsAnnotation: hosts},
	}, Data: map[string][]byte{}}
	for k, v := range data {
		s.Data[k] = []byte(v)
	}
	return s
}

// certificate returns a self-signed certificate, or with another public key one that fits no private key, and the key.
func certificate(t *testing.T, other any) (text, key string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(nil, template, template, cmp.Or[any](other, public), private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}))
}

func pair(t *testing.T) (text, key string) {
	t.Helper()
	return certificate(t, nil)
}

// largeAuthority returns a certificate whose key takes long to use.
func largeAuthority(t *testing.T) string {
	t.Helper()
	text, _ := certificate(t, &rsa.PublicKey{N: new(big.Int).SetBit(big.NewInt(1), 8192, 1), E: 65537})
	return text
}

func TestEntries(t *testing.T) {
	certificate, key := pair(t)
	entries, ignored := credentials.Compile([]corev1.Secret{
		secret("a", "https://API.example.com, https://api.example.com:8443/v1/",
			map[string]string{"bearerToken": hidden + "\n"}),
		secret("b", "https://api.example.com/v1",
			map[string]string{"username": "me\n", "password": hidden + "\r\n", "header.x-team": "a\n"}),
		secret("c", "https://pki.example.com/",
			map[string]string{"tls.crt": certificate, "tls.key": key, "ca.crt": certificate}),
	}, 1<<20)
	if len(ignored) > 0 {
		t.Fatal(ignored[0].Reason)
	}
	var got []string
	for _, e := range entries {
		pems := strings.Count(e.Certificate+e.Key+e.Authorities, "-----BEGIN")
		got = append(got, fmt.Sprintf("%s %s:%d%s %v %d", strings.TrimPrefix(e.Source, "Secret "), e.Host, e.Ports[0],
			e.PathPrefix, e.Headers, pems))
	}
	want := []string{
		"b api.example.com:443/v1 map[Authorization:Basic bWU6czNjcjN0 X-Team:a] 0",
		"a api.example.com:8443/v1 map[Authorization:Bearer s3cr3t] 0",
		"a api.example.com:443 map[Authorization:Bearer s3cr3t] 0",
		"c pki.example.com:443 map[] 3",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestIgnored(t *testing.T) {
	certificate, _ := pair(t)
	_, other := pair(t)
	const noURL = "host 1 of x-kv8s.io/curl-hosts is not an https URL with a host name and an optional path, " +
		"without wildcard"
	const noPair = "tls.crt and tls.key are not a PEM certificate with its key"
	bearer := map[string]string{"bearerToken": hidden}
	ignores := func(hosts string, data map[string]string, want string) {
		t.Helper()
		old := secret("old", "https://old.example.com/v1", bearer)
		entries, ignored := credentials.Compile([]corev1.Secret{secret("young", hosts, data), old}, 16<<10)
		if len(entries) != 1 || len(ignored) != 1 || ignored[0].Reason != want || ignored[0].Secret.Name != "young" {
			t.Errorf("%q %v: %d entries, %+v, want %s", hosts, data, len(entries), ignored, want)
		}
		if len(ignored) == 1 && strings.Contains(ignored[0].Reason, hidden) {
			t.Errorf("%s", ignored[0].Reason)
		}
	}
	for hosts, want := range map[string]string{
		"": "names no host; annotate it with x-kv8s.io/curl-hosts, such as https://api.example.com/v1",
		strings.Repeat("https://a.example.com ", 9): "x-kv8s.io/curl-hosts names more than 8 hosts",
		"https://old.example.com/v1/":               "https://old.example.com/v1 is already served by Secret old",
		"http://a.example.com":                      noURL,
		"https://*.example.com":                     noURL,
		"https://me:" + hidden + "@a.example.com":   noURL,
		"https://a.example.com/?q=" + hidden:        noURL,
		"https://a.example.com/a/../b":              noURL,
		"https://a.example.com:0/":                  noURL,
		"https://a_b.example.com/":                  noURL,
		"a.example.com":                             noURL,
	} {
		ignores(hosts, bearer, want)
	}
	for _, c := range []struct {
		want string
		data map[string]string
	}{
		{"has no credential; add bearerToken, username and password, header.NAME, tls.crt and tls.key, or ca.crt", nil},
		{
			"token is not a credential; use bearerToken, username and password, header.NAME, tls.crt and tls.key, or ca.crt",
			map[string]string{"token": hidden},
		},
		{"header.Cookie may not be set", map[string]string{"header.Cookie": hidden}},
		{"header.If-Match may not be set", map[string]string{"header.If-Match": hidden}},
		{"header.X is empty or has a control character", map[string]string{"header.X": hidden + "\r\nY: z"}},
		{"bearerToken is empty or has a control character", map[string]string{"bearerToken": "\n"}},
		{"header.x-a is set twice", map[string]string{"header.x-a": "1", "header.X-A": "2"}},
		{"header.Authorization is set twice", map[string]string{"bearerToken": hidden, "header.Authorization": "x"}},
		{
			"username excludes bearerToken and header.Authorization",
			map[string]string{"bearerToken": hidden, "username": "a", "password": hidden},
		},
		{"username and password go together, and username has no colon", map[string]string{"username": "a"}},
		{
			"tls.key has more than 8 KiB",
			map[string]string{"tls.crt": certificate, "tls.key": strings.Repeat(hidden, 2000)},
		},
		{"ca.crt has an RSA key of more than 8192 bits", map[string]string{"ca.crt": certificate + largeAuthority(t)}},
		{noPair, map[string]string{"tls.crt": certificate, "tls.key": other}},
		{noPair, map[string]string{"tls.crt": certificate}},
		{"ca.crt has no PEM certificate", map[string]string{"ca.crt": hidden}},
		{"the credentials of the namespace exceed its 16 KiB", map[string]string{"header.X": strings.Repeat("x", 17<<10)}},
	} {
		ignores("https://a.example.com", c.data, c.want)
	}
}

func TestIgnoredSecretsOfANamespaceAreReadUpToItsLimit(t *testing.T) {
	certificate, _ := pair(t)
	bad := map[string]string{"ca.crt": strings.Repeat(certificate, 100) + largeAuthority(t)}
	var secrets []corev1.Secret
	for i := range 4 {
		secrets = append(secrets, secret(fmt.Sprint("s", i), "https://a.example.com", bad))
	}
	_, ignored := credentials.Compile(secrets, 2*len(bad["ca.crt"]))
	for i, s := range ignored {
		if read := strings.HasPrefix(s.Reason, "ca.crt has an RSA key"); read != (i < 2) {
			t.Errorf("Secret %d: %s", i, s.Reason)
		}
	}
}

func TestHostLimitOfANamespace(t *testing.T) {
	var secrets []corev1.Secret
	for i := range 9 {
		var hosts strings.Builder
		for j := range 8 {
			fmt.Fprintf(&hosts, "https://h%d-%d.example.com ", i, j)
		}
		secrets = append(secrets, secret(fmt.Sprint("s", i), hosts.String(), map[string]string{"bearerToken": hidden}))
	}
	unlabelled := secret("unlabelled", "https://a.example.com", map[string]string{"bearerToken": hidden})
	unlabelled.Labels = nil
	entries, ignored := credentials.Compile(append(secrets, unlabelled), 1<<20)
	if len(entries) != 64 || len(ignored) != 1 ||
		ignored[0].Reason != "the Secrets of the namespace name more than 64 hosts" {
		t.Errorf("%d entries, %+v", len(entries), ignored)
	}
}
