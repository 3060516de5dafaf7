package operate_test

import (
	"testing"

	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/suitetest"
)

func TestOperate(t *testing.T) {
	t.Parallel() // beside the plain tests
	suitetest.Run(t, "Operate")
}

func TestMain(m *testing.M) { suitetest.VerifyNoLeaks(m) }

var key = pipeline.Key{Namespace: "default", Name: "kube-root-ca.crt", Key: "my.data"}
