package controlplane

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// dataDir is the folder of one control plane:
//
//	kubeconfig   of the administrator
//	port         of the API server
//	pki/         certificate, keys and the administrator's token
//	etcd/        data
//	logs/        of the current run
type dataDir struct{ Folder }

// openDataDir creates the folder if needed, and locks it. An empty name means a temporary folder.
func openDataDir(dir string) (d dataDir, err error) {
	if d.Folder, err = OpenFolder(dir, "control plane"); err != nil {
		return d, err
	}
	err = os.RemoveAll(d.path("logs")) // logs would grow without limit
	if err = errors.Join(err, os.MkdirAll(d.path("logs"), 0o700)); err != nil {
		return d, fmt.Errorf("create the folder of logs: %w", errors.Join(err, d.Close()))
	}
	return d, nil
}

func (d dataDir) path(elements ...string) string {
	return filepath.Join(append([]string{d.Dir}, elements...)...)
}

func (d dataDir) kubeconfig() string { return d.path("kubeconfig") }

// Ports are below the range of ephemeral ports of Linux (32768) and macOS (49152). Otherwise a client of a
// stopped API server could get that port for its own end, connect to itself, and block the restart.
const (
	firstPort = 20000
	lastPort  = 32000
)

// choosePort returns the port of the last run, or a free one, which it stores.
func (d dataDir) choosePort() (port int, err error) {
	file := d.path("port")
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		for range 100 {
			port = firstPort + rand.IntN(lastPort-firstPort)
			if err = tryPort(port); err == nil {
				return port, os.WriteFile(file, []byte(strconv.Itoa(port)+"\n"), 0o600) // the error has the name of the file
			}
		}
		return 0, fmt.Errorf("find a free port between %d and %d: %w", firstPort, lastPort, err)
	}
	if err == nil {
		port, err = strconv.Atoi(strings.TrimSpace(string(text)))
	}
	if err != nil {
		return 0, fmt.Errorf("read the port of the last run from %s: %w (remove the file to choose a new port)", file, err)
	}
	if err := tryPort(port); err != nil {
		return 0, fmt.Errorf("%w: the API server cannot listen on %s: %w (stop the other program, or remove %s to choose "+
			"a new port)", ErrPortTaken, loopback(port), err, file)
	}
	return port, nil
}

func tryPort(port int) error {
	listener, err := net.Listen("tcp", loopback(port))
	if err != nil {
		return err
	}
	return listener.Close()
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
