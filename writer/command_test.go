package writer_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/writer"
)

// Each mistake gets one sentence with the flag.
func TestCommandRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"concurrency": {[]string{"--concurrency=0"}, "--concurrency must be from 1 to 1024"},
		"writes":      {[]string{"--namespace-writes=-1"}, "--namespace-writes must be zero or more"},
		"events":      {[]string{"--namespace-events=-1"}, "--namespace-events must be zero or more"},
		"write bytes": {[]string{"--namespace-write-bytes=-1"}, "--namespace-write-bytes must be zero or more"},
		"namespace": {[]string{"--protected-namespaces=Kube_System"}, `--protected-namespaces: "Kube_System" is not ` +
			`the name of a namespace`},
		"selector": {[]string{"--selector=a in b"}, `--selector: "a in b" is not a label selector such as ` +
			`reconciler!=ignore`},
		"scheme":        {[]string{"--default-scheme=ftp"}, `--default-scheme: "ftp" is neither http nor https`},
		"annotation":    {[]string{"--annotation-keys=plain"}, `--annotation-keys: "plain" has no prefix`},
		"no annotation": {[]string{"--annotation-keys="}, "--annotation-keys: name at least one"},
		"keys": {[]string{"--trusted-keys=/dev/null"}, "--trusted-keys: read /dev/null: it must hold one to 2 " +
			"NKey user public keys"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := writer.Command()
			cmd.SetArgs(tt.args)
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			NewWithT(t).Expect(cmd.ExecuteContext(t.Context())).
				To(MatchError(And(ContainSubstring(tt.want), Not(ContainSubstring("\n")))))
		})
	}
}
