package kube

import (
	"net"
	"strconv"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
)

// Closable returns a copy of a configuration whose connections can be closed. It detects an unavailable API server and
// dead connections in seconds instead of half a minute.
func Closable(cluster *rest.Config) (own *rest.Config, closeAll func()) {
	own = rest.CopyConfig(cluster)
	if own.Dial == nil {
		own.Dial = (&net.Dialer{
			Timeout:         5 * time.Second,
			KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 3 * time.Second, Count: 3},
		}).DialContext
	}
	dialer := connrotation.NewDialer(own.Dial)
	own.Dial = dialer.DialContext
	return own, dialer.CloseAll
}

// Version parses a resource version (0: not a number). Versions of one kind can be compared (KEP-5504).
func Version(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
