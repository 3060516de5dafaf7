package system

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// accounts is where the shipped configuration of NATS is, below the checkout.
const accounts = "deploy/nats"

// identify makes the identities that accounts.conf knows, and puts that and its
// limits beside them.
func (s *System) identify(ctx context.Context) error {
	if err := s.curlctl(ctx, "identities", "--out", filepath.Join(s.dir, "identities")); err != nil {
		return err
	}
	for _, name := range []string{"accounts.conf", "limits.conf"} {
		text, err := os.ReadFile(filepath.Join(accounts, name))
		if err != nil {
			return fmt.Errorf("configure nats, which works in the checkout only: %w", err)
		}
		if err := os.WriteFile(filepath.Join(s.dir, name), text, 0o600); err != nil {
			return fmt.Errorf("configure nats: %w", err)
		}
	}
	return nil
}

// seed is the file with the seed of an identity.
func (s *System) seed(identity string) string {
	return filepath.Join(s.dir, "identities", identity+".nk")
}

func (s *System) curlctl(ctx context.Context, args ...string) error {
	text, err := exec.CommandContext(ctx, filepath.Join(s.options.Bin, "curlctl"), args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("curlctl %s: %w: %s", args[0], err, text)
	}
	return nil
}
