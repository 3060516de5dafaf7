package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

// EnvDir is the variable for a folder with the programs, named as in controller-runtime's envtest.
const EnvDir = "KUBEBUILDER_ASSETS"

// ErrMissing means that a folder lacks one of the programs.
var ErrMissing = errors.New("control plane binary missing")

const (
	etcd      = "etcd"
	apiServer = "kube-apiserver"
	kubectl   = "kubectl"
)

// ProgramOptions configure FindPrograms.
type ProgramOptions struct {
	// Build ignores KUBEBUILDER_ASSETS and archives of envtest.
	Build bool
	// AnyKubectl accepts an installed kubectl of any version, which saves a minute of a build.
	AnyKubectl bool
	// Progress receives the progress, for people. Nil means no output.
	Progress io.Writer
	// Cache is a folder with the programs of each version. Several processes may share it. The default is the
	// user's cache folder.
	Cache string
	// Index is the URL of the list of archives. The default is the list of setup-envtest.
	Index string

	display *progress
}

// Programs are etcd, kube-apiserver and kubectl in one folder. With AnyKubectl, it may have no kubectl.
type Programs struct {
	Dir string
}

// Etcd returns the path of etcd.
func (p Programs) Etcd() string { return filepath.Join(p.Dir, etcd) }

// APIServer returns the path of kube-apiserver.
func (p Programs) APIServer() string { return filepath.Join(p.Dir, apiServer) }

// Kubectl returns the path of kubectl.
func (p Programs) Kubectl() string { return filepath.Join(p.Dir, kubectl) }

// FindPrograms returns the programs in the folder of KUBEBUILDER_ASSETS. If that is not set, it returns them from a
// cache, which it fills from an archive of envtest or by a build from source, which takes minutes.
func FindPrograms(ctx context.Context, o ProgramOptions) (Programs, error) {
	if dir := os.Getenv(EnvDir); dir != "" && !o.Build {
		found, err := o.binariesIn(dir)
		if err != nil {
			return Programs{}, fmt.Errorf("%w: point %s at a folder with %s, or unset it to have them downloaded or built",
				err, EnvDir, o.needed())
		}
		return found, nil
	}
	if o.Cache == "" {
		cache, err := cacheDir()
		if err != nil {
			return Programs{}, fmt.Errorf("find a cache folder for the control plane: %w: set HOME or %s", err, EnvDir)
		}
		o.Cache = cache
	}
	o.display = newProgress(o.Progress)
	defer o.display.close()
	return o.fill(ctx)
}

// Kubectl returns the path of a kubectl on this machine.
func Kubectl() (string, bool) {
	if path, err := exec.LookPath(kubectl); err == nil {
		return path, true
	}
	found, err := ProgramOptions{}.binariesIn(os.Getenv(EnvDir))
	if err != nil {
		cache, _ := cacheDir() // without a home folder, find fails
		found, err = ProgramOptions{Cache: cache}.find()
	}
	return found.Kubectl(), err == nil
}

func (p ProgramOptions) programs() []string {
	if _, err := exec.LookPath(kubectl); err == nil && p.AnyKubectl {
		return []string{etcd, apiServer}
	}
	return []string{etcd, apiServer, kubectl}
}

// needed is a list of the programs, for people.
func (p ProgramOptions) needed() string { return strings.Join(p.programs(), ", ") }

func cacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "curl-me-that", "control-plane"), err
}

// binariesIn returns the programs in dir. The error wraps ErrMissing and names the first program that is missing
// or cannot be executed.
func (p ProgramOptions) binariesIn(dir string) (Programs, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Programs{}, fmt.Errorf("resolve the folder of the control plane: %w", err)
	}
	for _, name := range p.programs() {
		info, err := os.Stat(filepath.Join(dir, name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return Programs{}, fmt.Errorf("%w: no %s in %s", ErrMissing, name, dir)
		case err != nil:
			return Programs{}, fmt.Errorf("%w: %w", ErrMissing, err)
		case !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0:
			return Programs{}, fmt.Errorf("%w: %s in %s is not an executable file", ErrMissing, name, dir)
		}
	}
	return Programs{Dir: dir}, nil
}

// built and fetched are the folders of programs that were built from source or fetched from an archive.
func (p ProgramOptions) built() string   { return filepath.Join(p.Cache, versionHash()) }
func (p ProgramOptions) fetched() string { return p.built() + "-envtest" }

// find returns the programs if the cache has them.
func (p ProgramOptions) find() (found Programs, err error) {
	if found, err = p.binariesIn(p.built()); err != nil && !p.Build {
		found, err = p.binariesIn(p.fetched())
	}
	return found, err
}

// fill downloads or builds the programs, after waiting for other processes that do the same.
func (p ProgramOptions) fill(ctx context.Context) (Programs, error) {
	if found, err := p.find(); err == nil {
		return found, nil
	}
	if err := os.MkdirAll(p.Cache, 0o750); err != nil {
		return Programs{}, fmt.Errorf("create the cache of the control plane: %w", err)
	}
	lock, err := p.lock(ctx)
	if err != nil {
		return Programs{}, err
	}
	defer lock.Unlock()
	if found, err := p.find(); err == nil {
		return found, nil
	}
	if !p.Build {
		if err = p.provide(p.fetched(), func(scratch string) error { return p.fetch(ctx, scratch) }); err != nil {
			p.display.note("control plane: no archive of envtest, building from source: %s", err)
		}
	}
	if p.Build || err != nil {
		if err := p.provide(p.built(), func(scratch string) error { return p.build(ctx, scratch) }); err != nil {
			return Programs{}, err
		}
	}
	p.display.show("control plane: stored in %s", p.Cache)
	return p.find()
}

// lock polls, because a blocking flock cannot be cancelled.
func (p ProgramOptions) lock(ctx context.Context) (*flock.Flock, error) {
	lock := flock.New(filepath.Join(p.Cache, "lock"))
	if locked, err := lock.TryLock(); locked || err != nil {
		return lock, err
	}
	p.display.show("waiting for another process that builds the control plane")
	if _, err := lock.TryLockContext(ctx, 200*time.Millisecond); err != nil {
		return nil, fmt.Errorf("wait for another build of the control plane: %w", err)
	}
	return lock, nil
}

// provide fills a folder next to target and then renames it, so that an interrupted process never leaves an
// incomplete target.
func (p ProgramOptions) provide(target string, fill func(scratch string) error) error {
	scratch := target + ".new"
	if err := os.RemoveAll(scratch); err != nil {
		return fmt.Errorf("remove an interrupted build: %w", err)
	}
	defer os.RemoveAll(scratch)
	if err := os.MkdirAll(scratch, 0o750); err != nil {
		return fmt.Errorf("create the cache of the control plane: %w", err)
	}
	if err := fill(scratch); err != nil {
		return err
	}
	if _, err := p.binariesIn(scratch); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(target), os.Rename(scratch, target)); err != nil {
		return fmt.Errorf("move the control plane into the cache: %w", err)
	}
	return nil
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
	if f.Temporary = dir == ""; f.Temporary {
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
