package curlctl_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"

	"github.com/kv8s/curl-me-that/proto/suitetest"
)

func TestCurlctl(t *testing.T) {
	t.Setenv("COLUMNS", "") // the width of the terminal that runs the specs
	suitetest.Run(t, "Curlctl")
}

var _ = BeforeSuite(suitetest.ExpectNoLeaks)
