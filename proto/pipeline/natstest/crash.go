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
	crashed := s.options.StoreDir + ".crashed"
	err := copyLive(s.options.StoreDir, crashed)
	s.stop()
	if err == nil {
		err = os.RemoveAll(s.options.StoreDir)
	}
	if err == nil {
		err = os.Rename(crashed, s.options.StoreDir)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("replace store by a copy: %w", err), os.RemoveAll(crashed))
	}
	return nil
}

// copyTries is the number of attempts at a copy, because a file may vanish during one.
const copyTries = 5

// copyLive copies a directory while files come and go.
func copyLive(from, to string) (err error) {
	for range copyTries {
		err = errors.Join(os.RemoveAll(to), os.CopyFS(to, os.DirFS(from)))
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return err
}
