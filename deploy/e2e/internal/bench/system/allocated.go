package system

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/process"
)

// totalAllocated is the line of a heap profile as text with the bytes that were
// allocated since the start, freed ones included (runtime.MemStats).
const totalAllocated = "\n# TotalAlloc = "

// Allocated returns the bytes that each program has allocated since its start, by
// name. Options.Allocations must be set.
func (s *System) Allocated(ctx context.Context) (map[string]uint64, error) {
	allocated := map[string]uint64{}
	for _, p := range s.running() {
		text, _, err := process.Get(ctx, p.profiles+"heap?debug=1")
		if err != nil {
			return nil, err
		}
		sum, err := parseAllocated([]byte(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.Name, err)
		}
		allocated[p.Name] += sum
	}
	return allocated, nil
}

// parseAllocated reads a heap profile as text.
func parseAllocated(profile []byte) (uint64, error) {
	_, rest, found := bytes.Cut(profile, []byte(totalAllocated))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	if !found {
		return 0, errors.New("the heap profile does not have what was allocated")
	}
	return strconv.ParseUint(string(line), 10, 64)
}
