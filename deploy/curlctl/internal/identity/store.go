package identity

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/retry"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cluster"
)

// Dir keeps files in a directory, which it creates if necessary.
type Dir string

const (
	dirMode     = 0o700
	privateMode = 0o600
	// publicMode is the mode of files without secrets.
	publicMode = 0o644
)

// Where implements Store.
func (d Dir) Where(file string) string { return filepath.Join(string(d), file) }

// Update implements Store. It locks the directory, and writes each file atomically.
func (d Dir) Update(_ context.Context, change func(Files) (Files, error)) error {
	fail := func(err error) error { return fmt.Errorf("update identities: %w", err) }
	if err := os.MkdirAll(string(d), dirMode); err != nil {
		return fail(err)
	}
	dir, err := os.Open(string(d))
	if err != nil {
		return fail(err)
	}
	defer dir.Close() // unlocks
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX); err != nil {
		return fail(err)
	}
	before := Files{}
	for _, file := range allFiles() {
		content, err := os.ReadFile(d.Where(file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fail(err)
		}
		before[file] = content
	}
	after, err := change(before)
	if err != nil {
		return err
	}
	for _, file := range allFiles() {
		content, wanted := after[file]
		if old, exists := before[file]; !wanted || exists && bytes.Equal(old, content) {
			continue
		}
		if err := d.write(file, content); err != nil {
			return fmt.Errorf("write %s: %w", d.Where(file), err)
		}
	}
	return nil
}

func (d Dir) write(file string, content []byte) error {
	temporary, err := os.CreateTemp(string(d), ".identity-*")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name())
	mode := fs.FileMode(publicMode)
	if file == caKey || file == serverKey || strings.HasSuffix(file, ".nk") { // a private key
		mode = privateMode
	}
	_, err = temporary.Write(content)
	if err := errors.Join(err, temporary.Chmod(mode), temporary.Sync(), temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), d.Where(file))
}

// seedKey is the Secret's key with the seed of an identity.
const seedKey = "nkey"

// Secrets keeps files in Secrets of a namespace: one per identity with its seed and the CA certificate, one for
// the servers, and one for the certificate authority, which no pod mounts. It needs the rights to get, create
// and update them. Errors of the API server are *cluster.Error.
type Secrets struct {
	// Client of the namespace.
	Client corev1client.SecretInterface
	// Namespace and Prefix of the names: <prefix>-nats-<identity>.
	Namespace, Prefix string
}

// Where implements Store.
func (s *Secrets) Where(file string) string {
	for _, b := range s.bundles() {
		if b.keys[file] != "" {
			return "secret/" + s.Namespace + "/" + b.secret
		}
	}
	return ""
}

// bundle is a Secret, with the key of each file in it.
type bundle struct {
	secret string
	keys   map[string]string
}

// bundles returns all Secrets. A file is read from the first Secret that lists it. The others have copies.
func (s *Secrets) bundles() []bundle {
	all := []bundle{{s.Prefix + "-nats-ca", map[string]string{caCert: caCert, caKey: caKey}}}
	for _, owner := range append(identityNames(), servers) {
		keys := map[string]string{}
		for _, file := range needed(owner) {
			keys[file] = file
		}
		if owner != servers {
			keys[seedFile(owner)] = seedKey
		}
		all = append(all, bundle{s.Prefix + "-nats-" + owner, keys})
	}
	return all
}

// updateTries is the maximum number of tries. Each conflict means that another process has succeeded.
const updateTries = 20

// Update implements Store.
func (s *Secrets) Update(ctx context.Context, change func(Files) (Files, error)) error {
	raced := func(err error) bool { return apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) }
	return retry.OnError(wait.Backoff{Steps: updateTries}, raced, func() error { return s.update(ctx, change) })
}

func (s *Secrets) update(ctx context.Context, change func(Files) (Files, error)) error {
	before, secrets, err := s.load(ctx)
	if err != nil {
		return err
	}
	after, err := change(before)
	if err != nil {
		return err
	}
	for _, b := range s.bundles() {
		data := map[string][]byte{}
		for file, key := range b.keys {
			if content, exists := after[file]; exists {
				data[key] = content
			}
		}
		if len(data) == 0 {
			continue
		}
		if err := s.write(ctx, b.secret, secrets[b.secret], data); err != nil {
			return &cluster.Error{Operation: "write Secret " + s.Namespace + "/" + b.secret, Err: err}
		}
	}
	return nil
}

func (s *Secrets) load(ctx context.Context) (files Files, secrets map[string]*corev1.Secret, err error) {
	files, secrets = Files{}, map[string]*corev1.Secret{}
	read := map[string]bool{}
	for _, b := range s.bundles() {
		var data map[string][]byte
		secret, err := s.Client.Get(ctx, b.secret, metav1.GetOptions{})
		switch {
		case err == nil:
			secrets[b.secret], data = secret, secret.Data
		case !apierrors.IsNotFound(err):
			return nil, nil, &cluster.Error{Operation: "read Secret " + s.Namespace + "/" + b.secret, Err: err}
		}
		for file, key := range b.keys {
			if content, exists := data[key]; exists && !read[file] {
				files[file] = content
			}
			read[file] = true // a copy does not restore a removed file
		}
	}
	return files, secrets, nil
}

// write adds data to a Secret (nil: it does not exist). Other keys of the Secret stay.
func (s *Secrets) write(ctx context.Context, name string, have *corev1.Secret, data map[string][]byte) error {
	if have == nil {
		_, err := s.Client.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
				"app.kubernetes.io/managed-by": "curlctl", "app.kubernetes.io/part-of": "curl-me-that",
			}},
			Data: data,
		}, metav1.CreateOptions{FieldManager: "curlctl"})
		return err
	}
	next := have.DeepCopy()
	if next.Data == nil {
		next.Data = map[string][]byte{}
	}
	maps.Copy(next.Data, data)
	if maps.EqualFunc(have.Data, next.Data, bytes.Equal) {
		return nil
	}
	_, err := s.Client.Update(ctx, next, metav1.UpdateOptions{FieldManager: "curlctl"})
	return err
}
