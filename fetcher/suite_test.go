package fetcher_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

func TestFetcher(t *testing.T) { suitetest.Run(t, "Fetcher") }

var _ = BeforeSuite(suitetest.ExpectNoLeaks)
