// Package compose checks the running containers of docker compose and breaks them under load. `make
// test-compose` starts them and tells the suite where they are.
package compose_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/installation"
)

func TestCompose(t *testing.T) { installation.Run(t, "Compose") }

var i *installation.Installation

var _ = BeforeSuite(func(ctx SpecContext) { i = installation.Open(ctx) })
