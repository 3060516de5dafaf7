package reconcile

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestOldWorkIsForgottenEachTimeTheNumberOfObjectsHasDoubled(t *testing.T) {
	t.Parallel()
	for coalesce, most := range map[time.Duration]int{time.Second: minClean, time.Hour: 16 * minClean} {
		clock := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
		p := newPacing(Config{Coalesce: coalesce}, clock, nil, brake{})
		for n := range 16 * minClean {
			p.recordPublish(types.NamespacedName{Name: fmt.Sprint(n)})
			clock.SetTime(clock.Now().Add(time.Millisecond))
		}
		if len(p.objects) > most || p.cleanAt != most {
			t.Errorf("%d objects are kept, at most %d", len(p.objects), p.cleanAt)
		}
	}
}
