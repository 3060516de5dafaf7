package console

import (
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/keys"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// change is a version of a key with what it changed.
type change struct {
	*v1.Version
	// Difference to the version before is empty for the oldest one, and if the history lacks a body.
	Difference string
}

// versionsPage shows the versions of a key in the history, with their differences.
func (s *Server) versionsPage(v *visit) (*page, error) {
	key := pipeline.Key{Namespace: v.PathValue("namespace"), Name: v.PathValue("name"), Key: v.PathValue("key")}
	versions, err := v.client.Versions(v.Context(), key)
	if err != nil {
		return nil, err
	}
	changes := make([]change, len(versions))
	var newer []byte
	for i, version := range versions {
		changes[i].Version = version
		body, err := v.client.Body(v.Context(), key.Namespace, version.GetSha256())
		if v.Context().Err() != nil {
			return nil, err
		}
		if i > 0 && newer != nil && err == nil {
			changes[i-1].Difference = keys.Difference(body, newer,
				[2]string{keys.Short(version.GetSha256()), keys.Short(versions[i-1].GetSha256())})
		}
		newer = body
	}
	return &page{template: "versions.html", title: key.Key, data: map[string]any{
		"Key": key, "Changes": changes, "Command": command("curlctl", "history", key.Namespace+"/"+key.Name, key.Key),
	}}, nil
}
