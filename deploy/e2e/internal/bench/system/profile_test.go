package system

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

func TestProfilesGoToTheFolderOfTheirMoment(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"shared-1", "apart-1"} {
		p := NewProfiles(filepath.Join(dir, name), 7*time.Second)
		p.Add("etcd", func(seconds int) ([]byte, error) { return []byte(name + strconv.Itoa(seconds)), nil })
		if err := p.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"shared-1", "apart-1"} {
		if text, err := os.ReadFile(filepath.Join(dir, name, "etcd.cpu.pb.gz")); err != nil || string(text) != name+"7" {
			t.Errorf("%s: got %q, %v", name, text, err)
		}
	}
}

func TestAProfileThatCannotBeTakenIsAnError(t *testing.T) {
	p, cause := NewProfiles(t.TempDir(), time.Second), errors.New("404 Not Found")
	p.Add("etcd", func(int) ([]byte, error) { return nil, cause })
	if err := p.Wait(); !errors.Is(err, cause) {
		t.Errorf("got %v, want %v", err, cause)
	}
}
