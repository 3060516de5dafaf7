package get

import (
	"errors"
	"net/url"
	"time"
)

// Config has the limits of a GET. Start from Defaults. egress.Deps has the time limit of a dial.
type Config struct {
	// Version is the version of this program, for the User-Agent.
	Version string
	// MaxBody is the maximum size of a body, in bytes.
	MaxBody int64
	// Timeout is the time limit for everything: all hops and the body.
	Timeout time.Duration
	// TLSTimeout is the time limit of one TLS handshake.
	TLSTimeout time.Duration
	// HeaderTimeout is how long to wait for the headers of one response.
	HeaderTimeout time.Duration
	// CABundle is the path of PEM certificates that are trusted in addition to the system's; empty
	// means none.
	CABundle string
	// HeaderFile is the path of a file with headers per host (empty means none).
	HeaderFile string
	// TenantFile is the path of the file that keeper compiles from the Secrets of teams; empty means
	// none. The header file takes precedence.
	TenantFile string
	// Proxy is the URL of the operator's egress proxy; empty means none. Proxies in the environment
	// are never used.
	Proxy string
}

// Defaults returns the configuration without any file or proxy.
func Defaults() Config {
	return Config{
		Version:       "devel",
		MaxBody:       1_000_000,
		Timeout:       10 * time.Second,
		TLSTimeout:    3 * time.Second,
		HeaderTimeout: 5 * time.Second,
	}
}

// ProxyURL parses Proxy (nil means none). Errors do not contain its credentials.
func (c *Config) ProxyURL() (*url.URL, error) {
	if c.Proxy == "" {
		return nil, nil
	}
	u, err := url.Parse(c.Proxy)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
		return nil, errors.New("proxy must be a URL such as http://proxy.example.com:3128")
	}
	return u, nil
}
