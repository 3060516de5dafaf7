package natsconn

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"
)

// userInfo is the subject on which the server reports the user of a connection.
const userInfo = "$SYS.REQ.USER.INFO"

// userTimeout limits that request. Without the permission for it there is no response.
const userTimeout = 2 * time.Second

// anonymous is the name of a user without a name.
const anonymous = "anonymous"

// User is the user of a connection.
type User struct {
	// Name is a user name, a public key, or anonymous.
	Name string
	Permissions
}

// Permissions of a user (nil: everything is allowed).
type Permissions struct {
	Publish   *Rules `json:"publish"`
	Subscribe *Rules `json:"subscribe"`
}

// Rules are subjects with wildcards.
type Rules struct {
	// Allow lists allowed subjects (empty: all that are not denied).
	Allow []string `json:"allow"`
	// Deny lists denied subjects.
	Deny []string `json:"deny"`
}

// errUser means that the server gave no usable response.
var errUser = errors.New("the server did not report which user this is")

// User asks the server for the user of this connection. Without the permission to publish $SYS.REQ.USER.INFO it
// returns the name used to connect, and errUser.
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
			User        string      `json:"user"`
			UserName    string      `json:"user_name"`
			Permissions Permissions `json:"permissions"`
		} `json:"data"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return fallback, errUser
	}
	name := cmp.Or(answer.Data.UserName, answer.Data.User, fallback.Name)
	return User{Name: name, Permissions: answer.Data.Permissions}, nil
}
