package world

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// FreeAddress returns an address on loopback that no socket listens at.
func (e *Environment) FreeAddress() string {
	GinkgoHelper()
	address, err := e.ports.Free()
	Expect(err).NotTo(HaveOccurred())
	return address
}
