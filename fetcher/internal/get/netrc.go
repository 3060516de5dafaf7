package get

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// login is one entry of a netrc file.
type login struct {
	// machine is in lower case; empty in the default entry.
	machine        string
	user, password string
}

// basic returns the value of Authorization (RFC 7617).
func (l *login) basic() string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(l.user+":"+l.password))
}

// netrc is a list of logins in file order.
type netrc []*login

// find returns the first entry for a host: its own or the default.
func (n netrc) find(host string) *login {
	for _, l := range n {
		if l.machine == "" || l.machine == host {
			return l
		}
	}
	return nil
}

// errNetrcValue means that a keyword has no value.
var errNetrcValue = errors.New("value is missing")

// parseNetrc parses the format like curl: words between white space, values in double quotes with
// \", \\, \n, \r and \t if needed, a comment from a word that starts with #, and a macdef up to the
// next empty line. Errors name a line, never its content.
func parseNetrc(content []byte) (netrc, error) {
	p := netrcParser{}
	for i, line := range strings.Split(string(content), "\n") {
		if err := p.line(line); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	if p.pending != "" {
		return nil, fmt.Errorf("last line: %w", errNetrcValue)
	}
	for _, l := range p.logins {
		if l.user == "" {
			return nil, errors.New("machine has no login")
		}
	}
	return p.logins, nil
}

type netrcParser struct {
	logins  netrc
	pending string
	macro   bool
}

func (p *netrcParser) line(line string) error {
	if p.macro {
		p.macro = strings.TrimSpace(line) != ""
		return nil
	}
	for {
		word, rest, err := cutWord(line)
		if err != nil || word == nil {
			return err
		}
		line = rest
		if err := p.word(*word); err != nil {
			return err
		}
		if p.macro {
			return nil
		}
	}
}

func (p *netrcParser) word(word string) error {
	if p.pending != "" {
		return p.value(word)
	}
	switch word {
	case "machine", "login", "password", "account":
		p.pending = word
	case "default":
		p.logins = append(p.logins, &login{})
	case "macdef":
		p.macro = true
	default:
		return errors.New("unknown word; expected machine, default, login, password, account or macdef")
	}
	return nil
}

func (p *netrcParser) value(value string) error {
	word := p.pending
	p.pending = ""
	if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return errors.New("value has a control character")
	}
	if word == "machine" {
		if value == "" {
			return errNetrcValue
		}
		p.logins = append(p.logins, &login{machine: strings.ToLower(value)})
		return nil
	}
	if len(p.logins) == 0 {
		return errors.New("word stands before the first machine or default")
	}
	last := p.logins[len(p.logins)-1]
	switch word {
	case "login":
		last.user = value
	case "password":
		last.password = value
	}
	return nil
}

// cutWord cuts the next word from a line; nil at its end.
func cutWord(line string) (word *string, rest string, err error) {
	line = strings.TrimLeft(line, " \t\r")
	switch {
	case line == "" || line[0] == '#':
		return nil, "", nil
	case line[0] == '"':
		return cutQuoted(line[1:])
	}
	end := strings.IndexAny(line, " \t\r")
	if end < 0 {
		end = len(line)
	}
	found := line[:end]
	return &found, line[end:], nil
}

func cutQuoted(line string) (*string, string, error) {
	var b strings.Builder
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '"':
			found := b.String()
			return &found, line[i+1:], nil
		case c == '\\' && i+1 < len(line):
			i++
			b.WriteString(unescape(line[i]))
		default:
			b.WriteByte(c)
		}
	}
	return nil, "", errors.New("quoted value has no end")
}

func unescape(c byte) string {
	switch c {
	case 'n':
		return "\n"
	case 'r':
		return "\r"
	case 't':
		return "\t"
	}
	return string(rune(c))
}
