package system

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
)

// profiled is how long a CPU profile of the programs lasts: less than the services take
// for a response at most.
const profiled = 25 * time.Second

// Profiles are being taken. It may be used from one goroutine.
type Profiles struct {
	dir     string
	lasting time.Duration
	group   errgroup.Group
}

// NewProfiles begins none yet: each that is added goes to a file in dir, and lasts so
// long.
func NewProfiles(dir string, lasting time.Duration) *Profiles {
	return &Profiles{dir: dir, lasting: lasting}
}

// Profile begins a CPU profile of each program, and returns at once. They go to a folder
// of that name. A program that does not listen yet is asked again until it does.
func (s *System) Profile(ctx context.Context, name string) *Profiles {
	p := NewProfiles(filepath.Join(s.options.Profiles, name), profiled)
	seen := map[string]int{}
	for _, program := range s.running() {
		name := program.Name
		if seen[name]++; seen[name] > 1 {
			name = fmt.Sprint(name, "-", seen[name])
		}
		p.group.Go(func() error {
			if err := program.ready(ctx); err != nil {
				return err
			}
			return errors.Join(
				p.saveCPU(ctx, http.DefaultTransport, name, program.profiles),
				p.save(ctx, http.DefaultTransport, name+".allocs.pb.gz", program.profiles+"allocs"),
				p.save(ctx, http.DefaultTransport, name+".heap.pb.gz", program.profiles+"heap?gc=1"),
			)
		})
	}
	return p
}

// Add begins one more profile, which get reads for as many seconds.
func (p *Profiles) Add(name string, get func(seconds int) ([]byte, error)) {
	p.group.Go(func() error {
		profile, err := get(int(p.lasting.Seconds()))
		if err != nil {
			return fmt.Errorf("read the profile of %s: %w", name, err)
		}
		return p.write(name+".cpu.pb.gz", profile)
	})
}

// AddFrom begins one more profile, which is read by HTTP from below a URL.
func (p *Profiles) AddFrom(ctx context.Context, by http.RoundTripper, name, url string) {
	p.group.Go(func() error { return p.saveCPU(ctx, by, name, url) })
}

// Wait returns when all are in their files, which `go tool pprof` reads.
func (p *Profiles) Wait() error { return p.group.Wait() }

func (p *Profiles) saveCPU(ctx context.Context, by http.RoundTripper, name, url string) error {
	return p.save(ctx, by, name+".cpu.pb.gz", fmt.Sprintf("%sprofile?seconds=%d", url, int(p.lasting.Seconds())))
}

func (p *Profiles) save(ctx context.Context, by http.RoundTripper, name, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return fmt.Errorf("read profile %s: %w", name, err)
	}
	response, err := by.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("read profile %s: %w", name, err)
	}
	defer response.Body.Close()
	profile, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	if err != nil {
		return fmt.Errorf("read profile %s: %w", name, err)
	}
	return p.write(name, profile)
}

func (p *Profiles) write(name string, profile []byte) error {
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return fmt.Errorf("make a folder for profiles: %w", err)
	}
	if err := os.WriteFile(filepath.Join(p.dir, name), profile, 0o600); err != nil {
		return fmt.Errorf("write a profile: %w", err)
	}
	return nil
}
