package world

import (
	. "github.com/onsi/ginkgo/v2"

	"github.com/kv8s/curl-me-that/proto/suitetest"
)

// FreeAddress returns an address on loopback that no socket listens at.
func (e *Environment) FreeAddress() string {
	GinkgoHelper()
	return suitetest.Must(e.ports.Free())
}
