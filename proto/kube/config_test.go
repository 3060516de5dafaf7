package kube_test

import (
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/proto/kube"
)

var _ = DescribeTable("A kubeconfig that cannot be used is one sentence, for services and users",
	func(list, sentence string) {
		dir := GinkgoT().TempDir()
		GinkgoT().Chdir(dir)
		GinkgoT().Setenv("KUBECONFIG", list)
		for name, text := range map[string]string{"empty": "", "broken": "clusters: 1"} {
			Expect(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)).To(Succeed())
		}
		options := kube.Options{}
		Expect(options.UserConfig()).Error().To(MatchError(HavePrefix(sentence)))
		Expect(options.Config("spec")).Error().To(MatchError(HavePrefix(sentence)))
	},
	Entry("missing", "nowhere", "read kubeconfig nowhere: stat nowhere: no such file or directory"),
	Entry("empty", "empty", "kubeconfig empty has no cluster"),
	Entry("one of several is missing", "empty:nowhere", "read kubeconfig nowhere: stat nowhere: no such file"),
	Entry("broken", "broken", "read kubeconfig broken: "),
)
