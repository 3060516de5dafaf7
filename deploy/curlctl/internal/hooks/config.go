package hooks

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kv8s/curl-me-that/proto/annotation/weburl"
)

// minSecret is the minimum length of a secret in bytes.
const minSecret = 16

// Hook is an entry of the file.
type Hook struct {
	// Name is the last part of the path /hooks/NAME.
	Name string `json:"name"`
	// URL is the prefix of the URLs to fetch.
	URL string `json:"url"`
	// Kind says how the sender proves that it knows the secret: hmac, gitlab or bearer.
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
		if hook.secret, err = os.ReadFile(filepath.Join(filepath.Dir(path), hook.SecretFile)); err == nil {
			hook.secret = bytes.TrimRight(hook.secret, "\r\n")
			err = hook.mistake(all)
		}
		if err != nil {
			return nil, fmt.Errorf("hook %d (%q) in %s: %w", i+1, hook.Name, path, err)
		}
		all[hook.Name] = hook
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no hooks", path)
	}
	return all, nil
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
	case h.Kind != "hmac" && h.Kind != "gitlab" && h.Kind != "bearer":
		return errors.New("kind is not hmac, gitlab or bearer")
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
	switch h.Kind {
	case "gitlab":
		return tokens(single(r.Header, "X-Gitlab-Token"), h.secret)
	case "bearer":
		return tokens(single(r.Header, "Authorization"), append([]byte("Bearer "), h.secret...))
	}
	sum, err := hex.DecodeString(mac(r.Header))
	if err != nil || len(sum) != sha256.Size {
		return unauthorized
	}
	hash := hmac.New(sha256.New, h.secret)
	if n, err := io.Copy(hash, http.MaxBytesReader(w, r.Body, maxBody)); n >= maxBody && err != nil {
		return oversized
	} else if err != nil {
		return incomplete
	}
	if !hmac.Equal(sum, hash.Sum(nil)) {
		return unauthorized
	}
	return accepted
}

// mac returns the HMAC-SHA256 of a request in hexadecimal digits, as GitHub, Gitea (with or without GitHub's header)
// and Bitbucket send it.
func mac(header http.Header) string {
	for _, name := range []string{"X-Hub-Signature-256", "X-Gitea-Signature", "X-Hub-Signature"} {
		if len(header.Values(name)) > 0 {
			return strings.TrimPrefix(single(header, name), "sha256=")
		}
	}
	return ""
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
