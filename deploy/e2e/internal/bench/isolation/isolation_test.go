package isolation_test

import (
	"strings"
	"testing"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/isolation"
)

func TestTableNamesEachTenantThatIsHeldUp(t *testing.T) {
	t.Parallel()
	for want, row := range map[string]isolation.Row{
		"| 9 | hangs | 0.10 s | 0.20 s | isolated |":          {Hole: 9, Tenant: "hangs", Without: 0.1, With: 0.2},
		"| 9 | hangs | 0.10 s | 5.00 s | isolated |":          {Hole: 9, Tenant: "hangs", Without: 0.1, With: 5},
		"| 9 | hangs | 4.00 s | 9.50 s | HELD UP |":           {Hole: 9, Tenant: "hangs", Without: 4, With: 9.5},
		"| 9 | hangs | 0.10 s | more than 1.00 s | HELD UP |": {Hole: 9, Tenant: "hangs", Without: 0.1, With: 1, GaveUp: true},
	} {
		var table strings.Builder
		if err := (isolation.Rows{row}).WriteTable(&table); err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(table.String(), want+"\n") {
			t.Errorf("got %q, want %q", table.String(), want)
		}
	}
}
