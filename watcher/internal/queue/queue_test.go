package queue_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/watcher/internal/queue"
)

func TestTheShorterWaitIsTheSoonest(t *testing.T) {
	t.Parallel()
	for _, c := range [][3]time.Duration{{0, 0, 0}, {0, 1, 1}, {1, 0, 1}, {1, 2, 1}, {2, 1, 1}} {
		NewWithT(t).Expect(queue.Soonest(c[0], c[1])).To(Equal(c[2]), "of %v", c[:2])
	}
}
