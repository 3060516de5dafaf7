// Package dial makes connections to the API server that can be closed.
package dial

import (
	"net"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
)

// Closable returns a copy of a configuration whose connections can be closed. An
// API server that is away is noticed in seconds, not after the stock half minute:
// when it does not accept connections, and when one is dead.
func Closable(cluster *rest.Config) (own *rest.Config, closeAll func()) {
	dialer := connrotation.NewDialer((&net.Dialer{
		Timeout:         5 * time.Second,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 3 * time.Second, Count: 3},
	}).DialContext)
	own = rest.CopyConfig(cluster)
	own.Dial = dialer.DialContext
	return own, dialer.CloseAll
}
