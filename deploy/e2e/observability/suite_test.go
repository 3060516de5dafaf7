// Package observability puts faults in on purpose, and holds the dashboard, the
// alerts and the runbooks to showing them: each within 30 s.
package observability_test

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/monitor"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/world"
)

func TestObservability(t *testing.T) { world.Run(t, "Observability") }

var (
	env       *world.Environment
	dashboard *monitor.Dashboard
	rules     *monitor.Rules
)

var _ = BeforeSuite(func() {
	env = world.Open()
	var err error
	dashboard, err = monitor.ReadDashboard("../../chart/files/dashboards/curl-me-that.json")
	Expect(err).NotTo(HaveOccurred())
	rules, err = monitor.ReadRules("../../chart/files/rules/*.yaml", "../../chart/files/rules/production/*.yaml")
	Expect(err).NotTo(HaveOccurred())
})

const (
	// shows is after what time a fault must show.
	shows = 30 * time.Second
	// calm is after what time all must be well again; work that was refused comes
	// back after a pause.
	calm = time.Minute
	// scrapes is how often the services are scraped here. That the dashboard is
	// in time with scrapes every 15 s, too, follows: what one scrape shows is
	// there after 15 s, and a rate after two.
	scrapes = time.Second
)
