package get

import (
	"errors"
	"fmt"
	"net/url"
	"time"
)

// Config bounds a GET. Start from Defaults. The time for a dial is a matter of
// egress.Deps.
type Config struct {
	// Version of this program, for the User-Agent.
	Version string
	// MaxBody is the largest body in bytes that is taken.
	MaxBody int64
	// MaxHeaderBytes bounds the headers of an answer, interim ones (1xx)
	// included.
	MaxHeaderBytes int64
	// MaxRedirects is how often an answer may point elsewhere; 0: never.
	MaxRedirects int
	// Timeout bounds the whole: every hop, the body included.
	Timeout time.Duration
	// TLSTimeout bounds one TLS handshake.
	TLSTimeout time.Duration
	// HeaderTimeout bounds the wait for the headers of one answer.
	HeaderTimeout time.Duration
	// IdleTimeout is how long an idle connection is kept.
	IdleTimeout time.Duration
	// MaxIdle bounds the idle connections of one policy. One host has no bound of its
	// own: more than its slots it never had, and to dial it again costs more.
	MaxIdle int
	// CABundle is the path of PEM certificates trusted beside those of the
	// system; empty: none.
	CABundle string
	// Netrc is the path of a netrc file with credentials; empty: none.
	Netrc string
	// HeaderFile is the path of a file with headers per host; empty: none.
	HeaderFile string
	// Proxy is the URL of an egress proxy that the operator named; empty: none.
	// The proxies of the environment are never used.
	Proxy string
}

// Defaults returns the configuration without any file or proxy.
func Defaults() Config {
	return Config{
		Version:        "devel",
		MaxBody:        1_000_000,
		MaxHeaderBytes: 64 << 10,
		MaxRedirects:   5,
		Timeout:        10 * time.Second,
		TLSTimeout:     3 * time.Second,
		HeaderTimeout:  5 * time.Second,
		IdleTimeout:    30 * time.Second,
		MaxIdle:        64,
	}
}

// Validate names the first limit that is out of range, by its flag if it has one.
func (c Config) Validate() error {
	for _, limit := range []struct {
		name string
		ok   bool
	}{
		{"--max-body", c.MaxBody > 0},
		{"header limit", c.MaxHeaderBytes > 0},
		{"--timeout", c.Timeout > 0},
		{"--tls-timeout", c.TLSTimeout > 0},
		{"--header-timeout", c.HeaderTimeout > 0},
		{"idle timeout", c.IdleTimeout > 0},
		{"number of idle connections", c.MaxIdle > 0},
	} {
		if !limit.ok {
			return fmt.Errorf("%s must be positive", limit.name)
		}
	}
	if c.MaxRedirects < 0 {
		return errors.New("--max-redirects must not be negative")
	}
	_, err := c.proxy()
	return err
}

// proxy parses Proxy; its credentials appear in no error.
func (c Config) proxy() (*url.URL, error) {
	if c.Proxy == "" {
		return nil, nil
	}
	u, err := url.Parse(c.Proxy)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
		return nil, errors.New("proxy must be a URL such as http://proxy.example.com:3128")
	}
	return u, nil
}
