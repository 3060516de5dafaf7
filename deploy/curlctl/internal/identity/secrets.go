package identity

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// seedKey is the key of a seed in the Secret of an identity.
const seedKey = "nkey"

// Secrets keeps files in Secrets of a namespace: one per identity with its seed and the
// certificate to trust, one for the servers, and one for the certificate authority, which no
// pod needs. It needs the rights to get, create and update them.
type Secrets struct {
	// Client of the namespace.
	Client corev1client.SecretInterface
	// Namespace and Prefix of the names: <prefix>-nats-<identity>.
	Namespace, Prefix string
}

// Where implements Store.
func (s *Secrets) Where(file string) string {
	for _, p := range s.places() {
		if p.file == file {
			return "secret/" + s.Namespace + "/" + p.secret
		}
	}
	return ""
}

// place of a file.
type place struct{ secret, key, file string }

// places of all files. The first place of a file is read. The others are copies.
func (s *Secrets) places() []place {
	name := func(what string) string { return s.Prefix + "-nats-" + what }
	all := []place{{name("ca"), caCert, caCert}, {name("ca"), caKey, caKey}}
	for _, owner := range append([]string{servers}, identityNames()...) {
		for _, file := range needed(owner) {
			key := file
			if file == seedFile(owner) {
				key = seedKey
			}
			all = append(all, place{name(owner), key, file})
		}
	}
	return all
}

// updateTries is the maximum number of tries. Each time another process has succeeded.
const updateTries = 20

// Update implements Store.
func (s *Secrets) Update(ctx context.Context, change func(Files) (Files, error)) error {
	for try := 1; ; try++ {
		err := s.update(ctx, change)
		if raced := apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err); !raced || try == updateTries {
			return err
		}
	}
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
	want := map[string]map[string][]byte{}
	for _, p := range s.places() {
		if content, exists := after[p.file]; exists {
			if want[p.secret] == nil {
				want[p.secret] = map[string][]byte{}
			}
			want[p.secret][p.key] = content
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if err := s.write(ctx, name, secrets[name], want[name]); err != nil {
			return fmt.Errorf("write Secret %s/%s: %w", s.Namespace, name, err)
		}
	}
	return nil
}

func (s *Secrets) load(ctx context.Context) (files Files, secrets map[string]*corev1.Secret, err error) {
	files, secrets = Files{}, map[string]*corev1.Secret{}
	read := map[string]bool{}
	for _, p := range s.places() {
		secret, known := secrets[p.secret]
		if !known {
			secret, err = s.Client.Get(ctx, p.secret, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				secret = nil
			} else if err != nil {
				return nil, nil, fmt.Errorf("read Secret %s/%s: %w", s.Namespace, p.secret, err)
			}
			secrets[p.secret] = secret
		}
		if read[p.file] || secret == nil {
			read[p.file] = true // a copy does not restore a removed file
			continue
		}
		read[p.file] = true
		if content, exists := secret.Data[p.key]; exists {
			files[p.file] = content
		}
	}
	return files, secrets, nil
}

// write adds data to a Secret, which keeps its other keys (nil: it does not exist).
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
