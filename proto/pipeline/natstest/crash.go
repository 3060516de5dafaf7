package natstest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Kill ends the server as kill -9 does, as far as that can be seen from
// outside: what it had handed to the operating system is kept, what it would
// have written on its way out is not. Start runs it again.
//
// The server shares this process, so its files are copied as they are, and the
// copy takes the place of what an orderly end leaves behind.
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

// copyTries is how often a copy is begun anew because a file vanished in it.
const copyTries = 5

// copyLive copies a directory whose files come and go.
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
