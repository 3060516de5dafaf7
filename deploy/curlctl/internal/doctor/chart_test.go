package doctor

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestTheChartSizesNATSByTheSameNumbers(t *testing.T) {
	t.Parallel()
	template, err := os.ReadFile("../../../chart/templates/_memory.tpl")
	if err != nil {
		t.Fatal(err)
	}
	formula := fmt.Sprintf("(add %d (mul %d (int64 $b.expectedKeys)))", idleMemory, keyMemory)
	if !strings.Contains(string(template), formula) {
		t.Errorf("_memory.tpl lacks %s", formula)
	}
}
