package controlplane

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gofrs/flock"
)

// EnvDir is the variable for a folder with the programs, named as in controller-runtime's envtest.
const EnvDir = "KUBEBUILDER_ASSETS"

// ErrMissing means that a folder lacks one of the programs.
var ErrMissing = errors.New("control plane binary missing")

// Programs of the control plane. A demo needs no kubectl.
const (
	etcdProgram      = "etcd"
	apiServerProgram = "kube-apiserver"
	kubectlProgram   = "kubectl"
)

// FindPrograms returns the folder with the programs: KUBEBUILDER_ASSETS, or that of this program, where make puts them.
func FindPrograms() (dir string, err error) {
	if dir = os.Getenv(EnvDir); dir == "" {
		self, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("find this program: %w", err)
		}
		dir = filepath.Dir(self)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", fmt.Errorf("resolve the folder of the control plane: %w", err)
	}
	for _, name := range []string{etcdProgram, apiServerProgram} {
		if _, err := exec.LookPath(filepath.Join(dir, name)); err != nil {
			return "", fmt.Errorf("%w: %w: set %s to a folder with etcd and kube-apiserver, such as from "+
				"setup-envtest, or run `make demo` in a checkout", ErrMissing, err, EnvDir)
		}
	}
	return dir, nil
}

// Kubectl returns the path of a kubectl on this machine.
func Kubectl() (path string, ok bool) {
	path, err := exec.LookPath(kubectlProgram)
	if err != nil {
		dir, _ := FindPrograms() // nobody runs a demo without
		path, err = exec.LookPath(filepath.Join(dir, kubectlProgram))
	}
	return path, err == nil
}

// ErrInUse means that another process uses a folder.
var ErrInUse = errors.New("folder in use")

// Folder is a folder that only one process uses. The kernel releases its lock when the process dies, so a crash
// leaves nothing to clean up.
type Folder struct {
	// Dir is the absolute path.
	Dir string
	// Temporary means that Close removes the folder.
	Temporary bool
	lock      *flock.Flock
}

// OpenFolder creates a folder if needed, and locks it. An empty dir means a temporary folder. Errors contain the name
// of the program, and wrap ErrInUse if the folder is locked.
func OpenFolder(dir, program string) (f Folder, err error) {
	f.Temporary = dir == ""
	if f.Temporary {
		f.Dir, err = os.MkdirTemp("", strings.ReplaceAll(program, " ", "-")+"-")
	} else if f.Dir, err = filepath.Abs(dir); err == nil {
		err = os.MkdirAll(f.Dir, 0o700)
	}
	if err != nil {
		return f, fmt.Errorf("create the folder of %s: %w", program, err)
	}
	f.lock = flock.New(filepath.Join(f.Dir, "lock"))
	locked, err := f.lock.TryLock()
	if err != nil {
		return f, fmt.Errorf("lock the folder of %s: %w", program, err)
	}
	if !locked {
		return f, fmt.Errorf("%w: another %s runs in %s: stop it or choose another folder", ErrInUse, program, f.Dir)
	}
	return f, nil
}

// Close unlocks the folder, and removes it if it is temporary. Otherwise it keeps the lock file, because two processes
// could lock two files of the same name.
func (f Folder) Close() error {
	err := f.lock.Unlock()
	if f.Temporary {
		err = errors.Join(err, os.RemoveAll(f.Dir))
	}
	return err
}

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
