package reconcile

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestRecentWorkIsCleanedEachTimeItDoubles(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	p := newPacing(Config{Coalesce: time.Second}, clock, nil, brake{})
	add := func(name string) {
		for n := range 4 * minClean {
			p.recordPublish(types.NamespacedName{Namespace: name, Name: fmt.Sprint(n)})
		}
	}
	add("recent")
	if len(p.objects) != 4*minClean || p.cleanAt < len(p.objects) {
		t.Errorf("%d of %d objects are kept, and cleaned at %d", len(p.objects), 4*minClean, p.cleanAt)
	}
	clock.SetTime(clock.Now().Add(3 * time.Hour))
	add("later")
	if len(p.objects) > 4*minClean {
		t.Errorf("%d objects are kept", len(p.objects))
	}
}
