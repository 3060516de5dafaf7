package curlctl

import (
	"bufio"
	"strings"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/printer"
)

// confirm asks a question. Without a terminal to ask at, the answer is no.
func (s *session) confirm(question string, args ...any) error {
	if !printer.Terminal(s.in) {
		return exitf(exitRefused, "nothing was done: there is no terminal to confirm at; give --yes")
	}
	s.aside.Textf(question+" [y/N] ", args...)
	answer, err := bufio.NewReader(s.in).ReadString('\n')
	if err == nil {
		switch strings.ToLower(strings.TrimSpace(answer)) {
		case "y", "yes":
			return nil
		}
	}
	return exitf(exitRefused, "nothing was done: not confirmed")
}
