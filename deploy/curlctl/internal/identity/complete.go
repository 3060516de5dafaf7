package identity

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kv8s/curl-me-that/proto/signature"
)

// Files are contents by name of file.
type Files map[string][]byte

// Store keeps files.
type Store interface {
	// Load returns what is there.
	Load(ctx context.Context) (Files, error)
	// Save writes what after has and before, which Load has returned, has not.
	// It returns errRaced when something else is there by now.
	Save(ctx context.Context, before, after Files) error
	// Where is where a file is, for people.
	Where(file string) string
}

// Item is what became of one thing.
type Item struct {
	// Name of the identity or certificate.
	Name string `json:"name"`
	// PublicKey of an identity.
	PublicKey string `json:"publicKey,omitempty"`
	// State is made, renewed or kept.
	State string `json:"state"`
	// Where it is.
	Where string `json:"where"`
	// NotAfter is until when a certificate is valid.
	NotAfter *time.Time `json:"notAfter,omitempty"`
}

// States of an Item.
const (
	made    = "made"
	renewed = "renewed"
	kept    = "kept"
)

// saveTries is how often it is begun anew because somebody else was faster.
// Each time somebody else is done.
const saveTries = 20

// Wanted is what a store is to have beside a seed for each identity.
type Wanted struct {
	// Hosts that the certificate of the servers is for, which ValidateHosts has
	// seen; none: no certificate and no authority.
	Hosts []string
	// Now is what certificates are valid from.
	Now time.Time
	// RevokeSigning asks for a new key of signatures, and that no earlier one is
	// trusted, as after a theft.
	RevokeSigning bool
}

// Ensure makes what is missing in a store. Errors wrap ErrUnusable if what exists
// is broken.
func Ensure(ctx context.Context, store Store, w Wanted) ([]Item, error) {
	for try := 1; ; try++ {
		before, err := store.Load(ctx)
		if err != nil {
			return nil, err
		}
		after, items, err := complete(before, w, store.Where)
		if err != nil {
			return nil, err
		}
		err = store.Save(ctx, before, after)
		if !errors.Is(err, errRaced) || try == saveTries {
			return items, err
		}
	}
}

// HandOut copies to a directory what one identity needs, or the servers, and nothing of
// the others: a directory with a file of another is an error. What is there already
// and current stays.
func HandOut(ctx context.Context, from Store, name string, to Store) error {
	all, err := from.Load(ctx)
	if err != nil {
		return err
	}
	have, err := to.Load(ctx)
	if err != nil {
		return err
	}
	for file := range have {
		if !slices.Contains(needed(name), file) {
			return fmt.Errorf("%s is not for %s and lies in its directory; remove it, or name another directory", to.Where(file), name)
		}
	}
	files := Files{}
	for _, file := range needed(name) {
		if content, exists := all[file]; exists {
			files[file] = content
		}
	}
	return to.Save(ctx, have, files)
}

// ValidateNames refuses what HandOut does not know.
func ValidateNames(names iter.Seq[string]) error {
	for name := range names {
		if name != servers && !slices.Contains(identityNames(), name) {
			return fmt.Errorf("%q is none of %s, %s", name, servers, strings.Join(identityNames(), ", "))
		}
	}
	return nil
}

// ValidateHosts refuses what no certificate can be for.
func ValidateHosts(hosts []string) error {
	for _, host := range hosts {
		wrong := validation.IsDNS1123Subdomain(host)
		if strings.HasPrefix(host, "*.") {
			wrong = validation.IsWildcardDNS1123Subdomain(host)
		}
		if net.ParseIP(host) == nil && len(wrong) > 0 {
			return fmt.Errorf("%q is neither the name of a host nor an IP address", host)
		}
	}
	return nil
}

// complete returns files with what was missing. No key that exists is replaced,
// but that of a certificate which has to be renewed, and one that is revoked.
func complete(have Files, w Wanted, where func(string) string) (Files, []Item, error) {
	files, keys := maps.Clone(have), map[string]string{}
	if w.RevokeSigning {
		delete(files, signature.SeedFile)
		delete(files, signature.KeysFile)
	}
	var items []Item
	for _, name := range identityNames() {
		item, err := seed(files, seedFile(name), where)
		if err != nil {
			return nil, nil, err
		}
		item.Name, keys[name] = name, item.PublicKey
		items = append(items, item)
	}
	signing, err := seed(files, signature.SeedFile, where)
	if err != nil {
		return nil, nil, err
	}
	signing.Name = "signing"
	items = append(items, signing)
	files[signature.KeysFile] = trusted(signing.PublicKey, files[signature.KeysFile])
	if next := variables(keys); !bytes.Equal(files[variablesFile], next) {
		files[variablesFile] = next
	}
	if len(w.Hosts) == 0 {
		return files, items, nil
	}
	certified, err := certify(files, w.Hosts, w.Now, where)
	return files, append(items, certified...), err
}

// seed adds a seed to files if it is missing, and returns what became of it.
func seed(files Files, file string, where func(string) string) (Item, error) {
	item := Item{State: kept, Where: where(file)}
	var err error
	if have, exists := files[file]; exists {
		item.PublicKey, err = publicKey(have)
	} else {
		item.State = made
		files[file], item.PublicKey, err = newSeed()
	}
	if err != nil {
		return Item{}, fmt.Errorf("read %s: %w", where(file), err)
	}
	return item, nil
}

// trusted returns the file of public keys with the one in use first, and behind it
// the one that was in use before, whose signatures may still be on their way.
func trusted(inUse string, have []byte) []byte {
	keys := []string{inUse}
	for key := range strings.FieldsSeq(string(have)) {
		if key != inUse && len(keys) < signature.MaxKeys {
			keys = append(keys, key)
		}
	}
	return []byte(strings.Join(keys, "\n") + "\n")
}

// certify adds what is missing for TLS to files.
func certify(files Files, hosts []string, now time.Time, where func(string) string) ([]Item, error) {
	ca, state := authority{}, kept
	var err error
	if files[caCert] == nil {
		state = made
		ca, files[caCert], files[caKey], err = newAuthority(files[caKey], now)
	} else {
		ca, err = parse(files[caCert], files[caKey])
	}
	if err == nil && !now.Before(ca.cert.NotAfter) {
		err = fmt.Errorf("it was valid until %s; remove it and its key to have a new one made: %w", ca.cert.NotAfter.Format(time.DateOnly), ErrUnusable)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", where(caCert), err)
	}
	items := []Item{{Name: "ca", State: state, Where: where(caCert), NotAfter: &ca.cert.NotAfter}}

	state = kept
	if !ca.fits(files[serverCert], files[serverKey], hosts, now) {
		state = made
		if files[serverCert] != nil {
			state = renewed
		}
		if files[serverCert], files[serverKey], err = ca.server(hosts, now); err != nil {
			return nil, err
		}
	}
	server, err := parse(files[serverCert], files[serverKey])
	if err != nil {
		return nil, err
	}
	return append(items, Item{Name: "tls", State: state, Where: where(serverCert), NotAfter: &server.cert.NotAfter}), nil
}
