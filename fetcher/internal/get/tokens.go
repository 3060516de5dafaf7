package get

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
	"golang.org/x/sync/singleflight"

	"github.com/kv8s/curl-me-that/proto/process/reload"
)

const (
	// renewBefore is how long before its expiry a token is renewed.
	renewBefore = time.Minute
	// renewAfter is how old a token must be to be renewed after a 401, so that a URL that always
	// responds with 401 does not flood the token URL.
	renewAfter = 10 * time.Second
	// failFor is how long requests fail after a failure, without another one to the token URL.
	failFor = time.Second
	// endless is the life of a token that does not expire.
	endless = 100 * 365 * 24 * time.Hour
)

// errNoToken means that the token URL gave no token. Joined causes may contain text of the server.
var errNoToken = errors.New("got no token")

// oauth2Client has the settings of the client credentials grant (RFC 6749 section 4.4).
type oauth2Client struct {
	TokenURL         string   `yaml:"tokenURL"`
	ClientID         string   `yaml:"clientID"`
	ClientSecretFile string   `yaml:"clientSecretFile"`
	Scopes           []string `yaml:"scopes"`
	// Audience is a parameter that some servers need (empty means none).
	Audience string `yaml:"audience"`

	// host is that of the token URL.
	host string
}

// compile validates the settings.
func (o *oauth2Client) compile() error {
	u, err := url.Parse(o.TokenURL)
	switch {
	case err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil:
		return errors.New("oauth2: tokenURL must be an https URL without credentials")
	case o.ClientID == "" || o.ClientSecretFile == "":
		return errors.New("oauth2: add clientID and clientSecretFile")
	}
	o.host = u.Hostname()
	return nil
}

// tokens holds the token of one OAuth2. It is safe for concurrent use.
type tokens struct {
	cfg    clientcredentials.Config
	secret *reload.File[string]
	group  singleflight.Group

	mu    sync.Mutex
	value string
	// The token is to be renewed at renewal and is valid until expiry.
	obtained, renewal, expiry time.Time
	// failed is the time of the last failure.
	failed time.Time
}

// newTokens returns tokens that obtain the first token on demand.
func newTokens(o oauth2Client, secret *reload.File[string]) *tokens {
	t := &tokens{secret: secret}
	t.cfg = clientcredentials.Config{ClientID: o.ClientID, TokenURL: o.TokenURL, Scopes: o.Scopes}
	if o.Audience != "" {
		t.cfg.EndpointParams = url.Values{"audience": {o.Audience}}
	}
	return t
}

// Token returns the current token. A token that expires soon is renewed in the background.
func (t *tokens) Token(ctx context.Context, c *Client) (string, error) {
	t.mu.Lock()
	now, value := c.deps.Now(), t.value
	current, expired := now.Before(t.renewal), !now.Before(t.expiry)
	t.mu.Unlock()
	if current {
		return value, nil
	}
	renewed := t.renew(ctx, c)
	if !expired {
		return value, nil
	}
	return wait(ctx, renewed)
}

// Replace returns another token after a server rejected one with a 401, or the same one if that is too
// new to be renewed.
func (t *tokens) Replace(ctx context.Context, c *Client, rejected string) (string, error) {
	t.mu.Lock()
	value, obtained := t.value, t.obtained
	t.mu.Unlock()
	if value != rejected || c.deps.Now().Sub(obtained) < renewAfter {
		return value, nil
	}
	return wait(ctx, t.renew(ctx, c))
}

func wait(ctx context.Context, renewed <-chan singleflight.Result) (string, error) {
	select {
	case r := <-renewed:
		value, _ := r.Val.(string)
		return value, r.Err
	case <-ctx.Done():
		return "", errors.Join(errNoToken, context.Cause(ctx))
	}
}

// renew makes one request for all callers, which outlives each of them.
func (t *tokens) renew(ctx context.Context, c *Client) <-chan singleflight.Result {
	ctx = context.WithoutCancel(ctx)
	return t.group.DoChan("", func() (any, error) {
		t.mu.Lock()
		failing := c.deps.Now().Sub(t.failed) < failFor
		t.mu.Unlock()
		if failing {
			return "", errNoToken
		}
		return t.request(ctx, c)
	})
}

// request asks the token URL. It is subject to the policy of all namespaces, because all namespaces of an entry
// share its token.
func (t *tokens) request(ctx context.Context, c *Client) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout/2)
	defer cancel()
	client := &http.Client{
		Transport: &transport{client: c, policy: c.deps.Gate.For(""), hop: new(hop)},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // a redirect would carry the client secret elsewhere
		},
	}
	t.cfg.ClientSecret = t.secret.Value()
	token, err := t.cfg.Token(context.WithValue(ctx, oauth2.HTTPClient, client))
	t.mu.Lock()
	defer t.mu.Unlock()
	now, life := c.deps.Now(), endless
	if err == nil && !token.Expiry.IsZero() {
		life = time.Until(token.Expiry)
	}
	if err != nil || token.Type() != "Bearer" || !isToken(token.AccessToken) || life <= 0 {
		t.failed = now
		return "", errors.Join(errNoToken, err)
	}
	t.value, t.obtained, t.failed = token.AccessToken, now, time.Time{}
	t.expiry = now.Add(life)
	t.renewal = t.expiry.Add(-min(renewBefore, life/2))
	return t.value, nil
}
