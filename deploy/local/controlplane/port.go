package controlplane

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
)

// Ports are taken from below the range that Linux (32768) and macOS (49152) give
// to outgoing connections. Otherwise, while the API server is down, a client that
// tries to reach it could be given that very port, connect to itself, and block
// the restart.
const (
	firstPort = 20000
	lastPort  = 32000
)

// choosePort returns the port of the last run, or any free one, and keeps it for the
// next run.
func choosePort(d dataDir) (int, error) {
	port, err := readPort(d.path("port"))
	if err != nil {
		return 0, err
	}
	if port == 0 {
		if port, err = freePort(); err != nil {
			return 0, err
		}
	} else if err := tryPort(port); err != nil {
		return 0, fmt.Errorf("%w: the API server cannot listen on %s: %w; stop what does, or remove %s to have another port chosen",
			ErrPortTaken, loopback(port), err, d.path("port"))
	}
	if err := os.WriteFile(d.path("port"), []byte(strconv.Itoa(port)+"\n"), 0o600); err != nil {
		return 0, fmt.Errorf("store the port of the API server: %w", err)
	}
	return port, nil
}

// readPort returns zero when there was no earlier run.
func readPort(path string) (int, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the port of the last run: %w", err)
	}
	port, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("read the port of the last run from %s: %w; remove the file to have one chosen", path, err)
	}
	return port, nil
}

func freePort() (int, error) {
	var err error
	for range 100 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if err = tryPort(port); err == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("find a free port between %d and %d: %w", firstPort, lastPort, err)
}

func tryPort(port int) error {
	listener, err := net.Listen("tcp", loopback(port))
	if err != nil {
		return err
	}
	return listener.Close()
}

func loopback(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
