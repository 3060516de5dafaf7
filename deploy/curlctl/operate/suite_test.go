package operate_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

func TestOperate(t *testing.T) {
	suitetest.Run(t, "Operate")
}

var _ = BeforeSuite(suitetest.ExpectNoLeaks)

var key = pipeline.Key{Namespace: "default", Name: "kube-root-ca.crt", Key: "my.data"}
