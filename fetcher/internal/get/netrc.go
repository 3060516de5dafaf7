package get

import (
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"slices"
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
		if p.macro {
			p.macro = strings.TrimSpace(line) != ""
			continue
		}
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
	logins netrc
	// pending is the keyword whose value comes next.
	pending string
	macro   bool
}

var (
	// netrcWord matches a word, a quoted word, or the start of a quoted word without an end.
	netrcWord = regexp.MustCompile(`^[ \t\r]*(?:"((?:[^"\\]|\\.)*)"|([^" \t\r][^ \t\r]*)|("))`)
	// netrcEscapes resolves the first pair that fits, and otherwise drops the backslash.
	netrcEscapes = strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\r`, "\r", `\t`, "\t", `\`, "")
)

func (p *netrcParser) line(line string) error {
	for !p.macro {
		m := netrcWord.FindStringSubmatchIndex(line)
		if m == nil {
			return nil
		}
		var word string
		switch {
		case m[6] >= 0:
			return errors.New("quoted value has no end")
		case m[2] >= 0:
			word = netrcEscapes.Replace(line[m[2]:m[3]])
		case line[m[4]] == '#':
			return nil
		default:
			word = line[m[4]:m[5]]
		}
		if err := p.word(word); err != nil {
			return err
		}
		line = line[m[1]:]
	}
	return nil
}

func (p *netrcParser) word(word string) error {
	keyword := p.pending
	p.pending = ""
	switch {
	case keyword == "" && slices.Contains([]string{"machine", "login", "password", "account"}, word):
		p.pending = word
	case keyword == "" && word == "default":
		p.logins = append(p.logins, &login{})
	case keyword == "" && word == "macdef":
		p.macro = true
	case keyword == "":
		return errors.New("unknown word, expected machine, default, login, password, account or macdef")
	case strings.ContainsFunc(word, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return errors.New("value has a control character")
	case keyword == "machine" && word == "":
		return errNetrcValue
	case keyword == "machine":
		p.logins = append(p.logins, &login{machine: strings.ToLower(word)})
	case len(p.logins) == 0:
		return errors.New("word stands before the first machine or default")
	case keyword == "login":
		p.logins[len(p.logins)-1].user = word
	case keyword == "password":
		p.logins[len(p.logins)-1].password = word
	}
	return nil
}
