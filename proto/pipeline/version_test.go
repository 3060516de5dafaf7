package pipeline_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

var _ = DescribeTable("The flaw of NATS", func(version, flaw string) {
	Expect(pipeline.ServerFlaw(version)).To(Equal(flaw))
},
	Entry("2.11", "2.11.9", "upgrade NATS 2.11.9 to 2.14.7 or newer: it cannot schedule messages (ADR-51)"),
	Entry("2.12", "2.12.0", "upgrade NATS 2.12.0 to 2.14.7 or newer: "+
		"any client may purge any subject by schedule headers (nats-server#8055, #8135)"),
	Entry("2.14 with the leak", "2.14.6", "upgrade NATS 2.14.6 to 2.14.7 or newer: "+
		"it leaks the entries of expired messages (nats-server#8594)"),
	Entry("a release candidate", "2.14.7-RC.1", "upgrade NATS 2.14.7-RC.1 to 2.14.7 or newer: "+
		"it leaks the entries of expired messages (nats-server#8594)"),
	Entry("the oldest supported version", pipeline.MinServer, ""),
	Entry("the version that is tested", "2.15.3", ""),
	Entry("a build from source", "dev", ""),
)
