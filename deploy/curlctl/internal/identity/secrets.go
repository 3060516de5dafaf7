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

// Secrets keeps files in Secrets of one namespace: one for each identity, with
// its seed and the certificate to trust; one for the servers; and one for the
// certificate authority, which no pod needs. It needs the rights to get, create
// and update them.
type Secrets struct {
	// Client of the namespace.
	Client corev1client.SecretInterface
	// Namespace and Prefix of the names: <prefix>-nats-<identity>.
	Namespace, Prefix string

	loaded map[string]*corev1.Secret
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

// place is where a file is kept.
type place struct{ secret, key, file string }

// places of all files; the first of a file is the one that is read, others are
// copies.
func (s *Secrets) places() []place {
	name := func(what string) string { return s.Prefix + "-nats-" + what }
	all := []place{{name("ca"), caCert, caCert}, {name("ca"), caKey, caKey}}
	// Those of the writer are read: fetchers had no copy of the public keys once.
	for _, whose := range append([]string{servers, writer}, identityNames()...) {
		for _, file := range needed(whose) {
			key := file
			if file == seedFile(whose) {
				key = seedKey
			}
			all = append(all, place{name(whose), key, file})
		}
	}
	return all
}

// Load implements Store.
func (s *Secrets) Load(ctx context.Context) (Files, error) {
	s.loaded = map[string]*corev1.Secret{}
	files, read := Files{}, map[string]bool{}
	for _, p := range s.places() {
		secret, known := s.loaded[p.secret]
		if !known {
			var err error
			secret, err = s.Client.Get(ctx, p.secret, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				secret = nil
			} else if err != nil {
				return nil, fmt.Errorf("read Secret %s/%s: %w", s.Namespace, p.secret, err)
			}
			s.loaded[p.secret] = secret
		}
		// A copy does not bring back what was removed to be made anew.
		if read[p.file] {
			continue
		}
		read[p.file] = true
		if secret == nil {
			continue
		}
		if content, exists := secret.Data[p.key]; exists {
			files[p.file] = content
		}
	}
	return files, nil
}

// Save implements Store. Keys of a Secret that are not ours stay.
func (s *Secrets) Save(ctx context.Context, _, after Files) error {
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
		if err := s.write(ctx, name, want[name]); err != nil {
			return err
		}
	}
	return nil
}

func (s *Secrets) write(ctx context.Context, name string, data map[string][]byte) error {
	have := s.loaded[name]
	var err error
	if have == nil {
		_, err = s.Client.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
				"app.kubernetes.io/managed-by": "curlctl", "app.kubernetes.io/part-of": "curl-me-that",
			}},
			Data: data,
		}, metav1.CreateOptions{FieldManager: "curlctl"})
	} else {
		next := have.DeepCopy()
		if next.Data == nil {
			next.Data = map[string][]byte{}
		}
		maps.Copy(next.Data, data)
		if maps.EqualFunc(have.Data, next.Data, bytes.Equal) {
			return nil
		}
		_, err = s.Client.Update(ctx, next, metav1.UpdateOptions{FieldManager: "curlctl"})
	}
	switch {
	case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err):
		return fmt.Errorf("write Secret %s/%s: %w", s.Namespace, name, errRaced)
	case err != nil:
		return fmt.Errorf("write Secret %s/%s: %w", s.Namespace, name, err)
	}
	return nil
}
