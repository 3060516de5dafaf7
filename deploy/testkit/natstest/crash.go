package natstest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Kill simulates kill -9: data that the server handed to the operating system is kept, data that it
// would write during shutdown is lost. Start runs it again.
//
// The server shares this process, so Kill copies its files first and replaces the store with the
// copy after an orderly shutdown.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		return errors.New("kill NATS server: it is not running")
	}
	crashed := s.options.StoreDir + ".crashed"
	err := copyLive(s.options.StoreDir, crashed)
	s.stop()
	if err != nil {
		return errors.Join(fmt.Errorf("copy store: %w", err), os.RemoveAll(crashed))
	}
	if err := os.RemoveAll(s.options.StoreDir); err != nil {
		return fmt.Errorf("replace store: %w", err)
	}
	if err := os.Rename(crashed, s.options.StoreDir); err != nil {
		return fmt.Errorf("replace store: %w", err)
	}
	return nil
}

// copyTries is the number of attempts at a copy, because a file may vanish during one.
const copyTries = 5

// copyLive copies a directory while files come and go.
func copyLive(from, to string) error {
	var err error
	for range copyTries {
		if err = os.RemoveAll(to); err != nil {
			return err
		}
		if err = os.CopyFS(to, os.DirFS(from)); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return err
}
