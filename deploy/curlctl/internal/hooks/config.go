package hooks

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/kv8s/curl-me-that/proto/annotation/weburl"
)

const (
	// minSecret is the minimum length of a secret in bytes.
	minSecret = 16
	// maxSkew is the maximum age of a request that has its time, as Standard Webhooks recommends.
	maxSkew = 5 * time.Minute
)

// Hook is an entry of the file.
type Hook struct {
	// Name is the last part of the path /hooks/NAME.
	Name string `json:"name"`
	// URL is the prefix of the URLs to fetch.
	URL string `json:"url"`
	// Kind says how the sender proves that it knows the secret: hmac, standard, gitlab or bearer.
	Kind string `json:"kind"`
	// SecretFile holds the secret. It is relative to the folder of the file.
	SecretFile string `json:"secretFile"`

	secret []byte
}

// Load reads the hooks of a file by name, with their secrets.
func Load(path string) (map[string]Hook, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read hooks: %w", err)
	}
	var file struct {
		Hooks []Hook `json:"hooks"`
	}
	if err := yaml.UnmarshalStrict(content, &file); err != nil {
		return nil, fmt.Errorf("read hooks in %s: %w", path, err)
	}
	all := map[string]Hook{}
	for i, hook := range file.Hooks {
		err = hook.readSecret(filepath.Dir(path))
		if err = cmp.Or(err, hook.mistake(all)); err != nil {
			return nil, fmt.Errorf("hook %d (%q) in %s: %w", i+1, hook.Name, path, err)
		}
		all[hook.Name] = hook
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no hooks", path)
	}
	return all, nil
}

// readSecret reads the secret.
func (h *Hook) readSecret(dir string) (err error) {
	if h.secret, err = os.ReadFile(filepath.Join(dir, h.SecretFile)); err != nil {
		return err
	}
	h.secret = bytes.TrimRight(h.secret, "\r\n")
	encoded, isKey := strings.CutPrefix(string(h.secret), "whsec_")
	if isKey != (h.Kind == "standard") {
		return errors.New("a secret that begins with whsec_ needs kind standard, and kind standard such a secret")
	} else if isKey {
		if h.secret, err = base64.StdEncoding.DecodeString(encoded); err != nil {
			return fmt.Errorf("the secret after whsec_: %w", err)
		}
	}
	return nil
}

// mistake returns why the hook cannot be used next to the others.
func (h Hook) mistake(others map[string]Hook) error {
	_, wrong := weburl.Canonical(h.URL, "https")
	_, twice := others[h.Name]
	switch {
	case h.Name == "" || strings.ContainsAny(h.Name, "/%"):
		return errors.New("the name is empty or has a / or %")
	case twice:
		return errors.New("the name appears twice")
	case wrong != "" || strings.ContainsAny(h.URL, "?@"):
		return fmt.Errorf("url is not the start of a URL without credentials and query %s", wrong)
	case !slices.Contains([]string{"hmac", "standard", "gitlab", "bearer"}, h.Kind):
		return errors.New("kind is not hmac, standard, gitlab or bearer")
	case len(h.secret) < minSecret:
		return fmt.Errorf("the secret has fewer than %d bytes", minSecret)
	}
	return nil
}

// authenticate returns accepted if the sender of a request knows the secret. It reads the body only for its MAC.
func (h Hook) authenticate(w http.ResponseWriter, r *http.Request) outcome {
	if r.ContentLength > maxBody {
		return oversized
	}
	var before string
	var sums [][]byte
	switch h.Kind {
	case "gitlab":
		return tokens(single(r.Header, "X-Gitlab-Token"), h.secret)
	case "bearer":
		return tokens(single(r.Header, "Authorization"), append([]byte("Bearer "), h.secret...))
	case "standard":
		before, sums = standard(r.Header)
	default:
		sums = signature(r.Header)
	}
	if len(sums) == 0 {
		return unauthorized
	}
	hash := hmac.New(sha256.New, h.secret)
	hash.Write([]byte(before))
	if n, err := io.Copy(hash, http.MaxBytesReader(w, r.Body, maxBody)); n >= maxBody && err != nil {
		return oversized
	} else if err != nil {
		return incomplete
	}
	want := hash.Sum(nil)
	if slices.ContainsFunc(sums, func(sum []byte) bool { return hmac.Equal(sum, want) }) {
		return accepted
	}
	return unauthorized
}

// signature returns the HMAC-SHA256 of a body as GitHub, Gitea (with or without GitHub's header) and Bitbucket send it.
func signature(header http.Header) [][]byte {
	for _, name := range []string{"X-Hub-Signature-256", "X-Gitea-Signature", "X-Hub-Signature"} {
		if len(header.Values(name)) > 0 {
			sum, err := hex.DecodeString(strings.TrimPrefix(single(header, name), "sha256="))
			if err != nil {
				return nil
			}
			return [][]byte{sum}
		}
	}
	return nil
}

// standard returns the signatures of Standard Webhooks, one for each current key of the sender, and the signed text
// before the body.
func standard(header http.Header) (before string, sums [][]byte) {
	id, at := single(header, "Webhook-Id"), single(header, "Webhook-Timestamp")
	if seconds, err := strconv.ParseInt(at, 10, 64); err != nil || time.Since(time.Unix(seconds, 0)).Abs() > maxSkew {
		return "", nil
	}
	for one := range strings.FieldsSeq(single(header, "Webhook-Signature")) {
		if sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(one, "v1,")); err == nil {
			sums = append(sums, sum)
		}
	}
	return id + "." + at + ".", sums
}

// single returns the value of a header that appears once.
func single(header http.Header, name string) string {
	if values := header.Values(name); len(values) == 1 {
		return values[0]
	}
	return ""
}

// tokens compares digests, so that the time reveals neither the beginning nor the length of the secret.
func tokens(got string, secret []byte) outcome {
	a, b := sha256.Sum256([]byte(got)), sha256.Sum256(secret)
	if subtle.ConstantTimeCompare(a[:], b[:]) == 1 {
		return accepted
	}
	return unauthorized
}
