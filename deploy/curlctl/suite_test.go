package curlctl_test

import (
	"os"
	"testing"

	. "github.com/onsi/ginkgo/v2"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

var kubeconfig string

func TestCurlctl(t *testing.T) {
	t.Setenv("COLUMNS", "")              // the width of the terminal that runs the specs
	kubeconfig = os.Getenv("KUBECONFIG") // only inCluster uses it
	t.Setenv("KUBECONFIG", os.DevNull)
	suitetest.Run(t, "Curlctl")
}

var _ = BeforeSuite(suitetest.ExpectNoLeaks)
