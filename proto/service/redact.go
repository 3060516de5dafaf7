package service

import (
	"bytes"
	"io"
	"regexp"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// redacting writes log lines without the addresses that errors of the network
// bring along: "read tcp 10.0.0.1:53418->10.0.0.2:443: …". They are in the
// texts of many libraries, and all of those pass only here. The servers of the
// broker are kept, which the operator has named.
type redacting struct{ to io.Writer }

// addresses finds those of hosts, and the servers of the broker whole.
var addresses = regexp.MustCompile(`(?:nats|tls|wss?)://[^\s",]*|` +
	`\b[0-9]{1,3}(?:\.[0-9]{1,3}){3}\b(?::[0-9]+)?|` +
	`\[[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*(?:%[0-9A-Za-z]+)?\](?::[0-9]+)?`)

// Write writes one line. What it returns counts the bytes of line, whatever
// became of them.
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
