package bench

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/markdown"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/usage"
)

// Scale is one round for each of some counts of ConfigMaps, the smallest first.
type Scale struct {
	Setting Setting `json:"setting"`
	Sizes   []Size  `json:"sizes"`
	// Restarts beside the last count; nil: none.
	Restarts *Restarts `json:"restarts,omitempty"`
}

// Size is the round of one count. Each has NATS and services of its own.
type Size struct {
	N     int   `json:"n"`
	Round Round `json:"round"`
	// Memory at the end of the round, by program.
	Memory map[string]usage.Usage `json:"memory"`
	// Allocated is the KiB that each program allocated for a ConfigMap, from the
	// watcher's start on, and Disk the KiB that the files of NATS have for one.
	Allocated map[string]float64 `json:"allocatedKiBPerConfigMap"`
	Disk      float64            `json:"diskKiBPerConfigMap"`
}

// MeasureScale measures each count of Config.Scale, and restarts beside the last. On an error the sizes that
// were finished are returned.
func MeasureScale(ctx context.Context, c Config, progress Progress) (s Scale, err error) {
	s.Setting = c.setting()
	c.allocations = true
	counts, err := c.counts()
	if err != nil {
		return s, err
	}
	for i, n := range counts {
		c.N = n
		err := with(ctx, c, progress, func(b *bench) error {
			size, err := b.size(ctx)
			if err != nil {
				return err
			}
			s.Sizes = append(s.Sizes, size)
			if c.Restart && i == len(counts)-1 {
				restarts, err := b.restarts(ctx)
				s.Restarts = &restarts
				return err
			}
			return nil
		})
		if err != nil {
			return s, fmt.Errorf("%d ConfigMaps: %w", n, err)
		}
	}
	return s, nil
}

// counts are those of Config.Scale.
func (c *Config) counts() ([]int, error) {
	var counts []int
	for text := range strings.SplitSeq(c.Scale, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 2 {
			return nil, fmt.Errorf("-scale: %q is no number from 2 on", text)
		}
		counts = append(counts, max(2, int(float64(n)*c.Part())))
	}
	return counts, nil
}

// size makes one round.
func (b *bench) size(ctx context.Context) (s Size, err error) {
	s = Size{N: b.config.N, Allocated: map[string]float64{}}
	if err = b.system.StopWatcher(ctx); err != nil {
		return s, err
	}
	before, err := b.system.Allocated(ctx)
	if err != nil {
		return s, err
	}
	b.label = fmt.Sprint("scale-", s.N)
	if s.Round, err = b.round(ctx, Shared); err != nil {
		return s, err
	}
	after, err := b.system.Allocated(ctx)
	if err != nil {
		return s, err
	}
	for name, bytes := range after {
		s.Allocated[name] = float64(bytes-before[name]) / 1024 / float64(s.N)
	}
	if s.Memory, err = b.usage(); err != nil {
		return s, err
	}
	disk, err := sizeOf(b.system.Streams())
	s.Disk = float64(disk) / 1024 / float64(s.N)
	return s, err
}

// sizeOf is how many bytes all files below a folder have.
func sizeOf(dir string) (bytes int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			bytes += info.Size()
		}
		return err
	})
	return bytes, err
}

// WriteTable writes a row for each figure, with its growth from the first to the
// last count: above 1 it grows faster than the ConfigMaps.
func (s Scale) WriteTable(w io.Writer) error {
	if len(s.Sizes) == 0 {
		return nil
	}
	heads := []string{"ConfigMaps"}
	for _, size := range s.Sizes {
		heads = append(heads, strconv.Itoa(size.N))
	}
	t := markdown.New(append(heads, "last ÷ first")...)
	row := func(name, format string, of func(*Size) float64) {
		var cells []string
		for i := range s.Sizes {
			cells = append(cells, fmt.Sprintf(format, of(&s.Sizes[i])))
		}
		growth := of(&s.Sizes[len(s.Sizes)-1]) / of(&s.Sizes[0])
		t.Row(name, "%s | %.2f", strings.Join(cells, " | "), growth)
	}
	row("filled a second", "%.0f", func(z *Size) float64 { return z.Round.Pipeline.PerSecond })
	row("of the rate of bare patches", "%.2f", func(z *Size) float64 { return z.Round.Ratio })
	first := &s.Sizes[0]
	for _, name := range sorted(first.Round.Pipeline.Cost.CPUPerConfigMap) {
		row("CPU of "+name+" for each, ms", "%.3f", func(z *Size) float64 { return z.Round.Pipeline.Cost.CPUPerConfigMap[name] })
	}
	row("CPU of watcher, fetcher, writer and nats for each, ms", "%.3f", func(z *Size) float64 { return ours(z.Round.Pipeline.Cost) })
	for _, name := range sorted(first.Allocated) {
		row("allocated by "+name+" for each, KiB", "%.1f", func(z *Size) float64 { return z.Allocated[name] })
	}
	row("disk of nats for each, KiB", "%.2f", func(z *Size) float64 { return z.Disk })
	for _, name := range sorted(first.Memory) {
		row("RSS of "+name+", MiB", "%.0f", func(z *Size) float64 { return float64(z.Memory[name].RSS) / mebibyte })
	}
	if err := t.Write(w); err != nil || s.Restarts == nil {
		return err
	}
	fmt.Fprintln(w)
	return s.Restarts.WriteTable(w)
}
