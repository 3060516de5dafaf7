package process

import (
	"bytes"
	"io"
	"regexp"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// redacting removes addresses in network errors from log lines: "read tcp
// 10.0.0.1:53418->10.0.0.2:443: …". Many libraries produce such texts, and all of them pass here. The
// configured broker addresses stay.
type redacting struct{ to io.Writer }

// addresses matches host addresses, and complete broker addresses.
var addresses = regexp.MustCompile(`(?:nats|tls|wss?)://[^\s",]*|` +
	`\b[0-9]{1,3}(?:\.[0-9]{1,3}){3}\b(?::[0-9]+)?|` +
	`\[[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*(?:%[0-9A-Za-z]+)?\](?::[0-9]+)?`)

// Write writes one line. It returns the length of line, even if fewer bytes were written.
func (r redacting) Write(line []byte) (int, error) {
	if _, err := r.to.Write(redactAddresses(line)); err != nil {
		return 0, err
	}
	return len(line), nil
}

func redactAddresses(line []byte) []byte {
	return addresses.ReplaceAllFunc(line, func(found []byte) []byte {
		if bytes.Contains(found, []byte("://")) {
			return found
		}
		return []byte(pipeline.HiddenHost)
	})
}
