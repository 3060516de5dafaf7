package curlctl_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

func TestCurlctl(t *testing.T) {
	t.Setenv("COLUMNS", "")              // the width of the terminal that runs the specs
	kubeconfig = os.Getenv("KUBECONFIG") // only inCluster uses it
	t.Setenv("KUBECONFIG", os.DevNull)
	suitetest.Run(t, "Curlctl")
}

var kubeconfig string

var _ = BeforeSuite(suitetest.ExpectNoLeaks)

func (w *world) as(user string) *world {
	as := *w
	as.connect = []string{"--nats-url", strings.Replace(w.server.URL(), "://", "://"+user+":p@", 1)}
	return &as
}

// configured runs a broker with a configuration, and creates the streams as its user app.
func configured(ctx context.Context, text string) *world {
	GinkgoHelper()
	config := filepath.Join(GinkgoT().TempDir(), "nats.conf")
	Expect(os.WriteFile(config, []byte(text), 0o600)).To(Succeed())
	s := natstest.Broker(GinkgoTB(), natstest.Options{Listen: true, ConfigFile: config})
	w := &world{server: s}
	w.use(ctx, natstest.Connect(GinkgoTB(), s, nats.UserInfo("app", "p")))
	return w.as("app")
}

// contexts creates contexts of the nats command until the spec ends.
func contexts(texts map[string]string) {
	GinkgoHelper()
	home := GinkgoT().TempDir()
	GinkgoT().Setenv("XDG_CONFIG_HOME", home)
	Expect(os.MkdirAll(filepath.Join(home, "nats", "context"), 0o700)).To(Succeed())
	for name, text := range texts {
		Expect(os.WriteFile(filepath.Join(home, "nats", "context", name+".json"), []byte(text), 0o600)).To(Succeed())
	}
}
