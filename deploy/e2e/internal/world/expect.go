package world

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/status"
)

// data returns the newest value of a key, or nil without the key.
func (c *ConfigMap) data(key string) any {
	if object := c.world.History.Latest(c.Name); object != nil {
		if value, found := object.Data[key]; found {
			return value
		}
	}
	return nil
}

func (c *ConfigMap) binary(key string) []byte {
	if object := c.world.History.Latest(c.Name); object != nil {
		return object.BinaryData[key]
	}
	return nil
}

// EventuallyHasData waits until data has a value.
func (c *ConfigMap) EventuallyHasData(ctx context.Context, key, value string) {
	GinkgoHelper()
	c.EventuallyHasDataWithin(ctx, patience, key, value)
}

// EventuallyHasDataWithin waits until data has a value.
func (c *ConfigMap) EventuallyHasDataWithin(ctx context.Context, limit time.Duration, key, value string) {
	GinkgoHelper()
	Eventually(ctx, func() any { return c.data(key) }).WithTimeout(limit).
		Should(Equal(value), "data of %s in key %s", c.Name, key)
}

// EventuallyHasBinary waits until binaryData has a value.
func (c *ConfigMap) EventuallyHasBinary(ctx context.Context, key string, value []byte) {
	GinkgoHelper()
	Eventually(ctx, func() []byte { return c.binary(key) }).Should(Equal(value), "binaryData of %s in key %s", c.Name, key)
}

// EventuallyLacks waits until neither data nor binaryData has a key.
func (c *ConfigMap) EventuallyLacks(ctx context.Context, key string) {
	GinkgoHelper()
	Eventually(ctx, func() bool { return c.data(key) == nil && c.binary(key) == nil }).
		Should(BeTrue(), "ConfigMap %s still has key %s", c.Name, key)
}

// EventuallyReports waits until the status of a key has an error, or none if the error is empty.
func (c *ConfigMap) EventuallyReports(ctx context.Context, key, reason string) {
	GinkgoHelper()
	Eventually(ctx, func() any {
		object := c.world.History.Latest(c.Name)
		if object == nil {
			return nil
		}
		s, _ := status.Parse(object.Annotations[annotation.StatusKey])
		if entry, found := s.Keys[key]; found {
			return entry.Error
		}
		return nil
	}).Should(Equal(reason), "error in the status of %s for key %s", c.Name, key)
}
