// Package observability injects faults and checks that dashboard, alerts and runbooks show each of
// them within 30 s.
package observability_test

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/monitor"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
	"github.com/kv8s/curl-me-that/proto/suitetest"
)

func TestObservability(t *testing.T) { world.Run(t, "Observability") }

var (
	env       *world.Environment
	dashboard *monitor.Dashboard
	rules     *monitor.Rules
)

var _ = BeforeSuite(func() {
	env = world.Open()
	dashboard = suitetest.Must(monitor.ReadDashboard("../../chart/files/dashboards/curl-me-that.json"))
	rules = suitetest.Must(monitor.ReadRules("../../chart/files/rules/*.yaml",
		"../../chart/files/rules/production/*.yaml"))
})

const (
	// shows is how long the dashboard may take to show a fault.
	shows = 30 * time.Second
	// calm is how long recovery may take. Rejected work is retried after a pause.
	calm = time.Minute
	// scrapes is the scrape interval in this suite. The dashboard is also in time with 15 s between
	// scrapes: one scrape is visible after 15 s, and a rate after two.
	scrapes = time.Second
)
