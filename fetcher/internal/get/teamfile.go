package get

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/kv8s/curl-me-that/fetcher/internal/credential"
	"github.com/kv8s/curl-me-that/proto/headerfile"
)

// parseTeamFile parses the file that keeper compiles from the Secrets of teams. Errors name an
// entry, never a value.
func parseTeamFile(content []byte) (*headerFile, error) {
	if len(content) == 0 {
		return &headerFile{}, nil
	}
	var entries []headerfile.TeamEntry
	if err := json.Unmarshal(content, &entries); err != nil {
		return nil, errors.New("not a JSON list of entries") // the error may quote the file
	}
	file := &headerFile{}
	for i, team := range entries {
		e, err := teamEntry(team)
		if err != nil {
			return nil, fmt.Errorf("entry %d: %w", i+1, err)
		}
		file.entries = append(file.entries, e)
	}
	return file, nil
}

func teamEntry(t headerfile.TeamEntry) (*headerEntry, error) {
	e := &headerEntry{
		Host: t.Host, Ports: []int{t.Port}, PathPrefix: t.PathPrefix, Headers: t.Headers,
		Namespaces: []string{t.Namespace}, source: "Secret " + t.Source,
	}
	if t.Certificate+t.Key+t.Authorities != "" {
		var err error
		if e.fixed, err = credential.NewIdentity([]byte(t.Certificate), []byte(t.Key), []byte(t.Authorities)); err != nil {
			return nil, err
		}
	}
	if err := e.compile(); err != nil {
		return nil, err
	}
	if !e.host.IsExact() || !e.namespaces[0].IsExact() {
		return nil, errors.New("host and namespace must not be patterns")
	}
	return e, nil
}
