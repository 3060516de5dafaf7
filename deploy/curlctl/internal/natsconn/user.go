package natsconn

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"
)

// userInfo is served by the server itself: what it knows of the user.
const userInfo = "$SYS.REQ.USER.INFO"

// userTimeout bounds that; a user without the right to ask gets no answer.
const userTimeout = 2 * time.Second

// anonymous is the name of a user whom the server does not know by name.
const anonymous = "anonymous"

// User is the user that the server knows this connection by.
type User struct {
	// Name of the user: a name, a public key, or anonymous.
	Name string
	// Publish and Subscribe are what is allowed and denied; nil: everything.
	Publish, Subscribe *Rules
}

// Rules are subjects with wildcards.
type Rules struct {
	// Allow lists what is allowed; none: everything that is not denied.
	Allow []string `json:"allow"`
	// Deny lists what is not.
	Deny []string `json:"deny"`
}

// errUser: the server does not answer.
var errUser = errors.New("the server does not report which user this is")

// User asks the server for the user of this connection. It needs the right to publish
// $SYS.REQ.USER.INFO; without it, the name is what the connection was made
// with, and the error is errUser.
func (c *Connection) User(ctx context.Context) (User, error) {
	fallback := User{Name: cmp.Or(c.Conn.Opts.User, anonymous)}
	ctx, cancel := context.WithTimeout(ctx, userTimeout)
	defer cancel()
	m, err := c.Conn.RequestWithContext(ctx, userInfo, nil)
	if err != nil {
		return fallback, errUser
	}
	var answer struct {
		Data struct {
			User        string `json:"user"`
			UserName    string `json:"user_name"`
			Permissions struct {
				Publish   *Rules `json:"publish"`
				Subscribe *Rules `json:"subscribe"`
			} `json:"permissions"`
		} `json:"data"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return fallback, errUser
	}
	return User{
		Name:    cmp.Or(answer.Data.UserName, answer.Data.User, fallback.Name),
		Publish: answer.Data.Permissions.Publish, Subscribe: answer.Data.Permissions.Subscribe,
	}, nil
}
