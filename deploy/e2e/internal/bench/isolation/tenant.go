package isolation

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kv8s/curl-me-that/deploy/e2e/internal/bench/system"
	"github.com/kv8s/curl-me-that/deploy/e2e/internal/origin"
)

const (
	// pairsEach is how many pairs a ConfigMap of refused results has, filled how
	// many bytes its annotations then have, of 256 KiB.
	pairsEach = 128
	filled    = 256<<10 - 200
	// largeBody is the size of the bodies that change, in bytes.
	largeBody = 700 << 10
)

// tenant is a namespace that does what could hold up another one.
type tenant struct {
	// hole is the number of the fault that it aims at.
	hole int
	name string
	// count is how many ConfigMaps it has, and object makes one.
	count  int
	object func(o *origin.Server, i int) *corev1.ConfigMap
	// warmUp is how long it is at work before the ordinary keys come.
	warmUp time.Duration
	// elsewhere: the ordinary keys are on another host.
	elsewhere bool
}

func tenants() []tenant {
	return []tenant{
		{8, "4,096 results that no patch can take", 32, refused, 10 * time.Second, true},
		{9, "1,000 keys on a host that hangs, the same host", 1000, at("/hang"), 0, false},
		{10, "4,000 keys on a host with answers after 1 s, another host", 4000, at("/slow"), 10 * time.Second, true},
		{10, "4,000 keys on a host with answers after 1 s, the same host", 4000, at("/slow"), 10 * time.Second, false},
		{11, "a URL that asks for an hour of rest, the same host", 1, at("/busy"), 5 * time.Second, false},
		{12, "200 bodies of 700 kB that change each time", 200, changing, 5 * time.Second, true},
	}
}

// ordinaryURL is on the host of the hostile tenant, or another name of the same
// machine.
func (t tenant) ordinaryURL(o *origin.Server, name string) string {
	path := "/ordinary/" + name
	if t.elsewhere {
		return "http://" + o.PageByAddress(path)
	}
	return o.Page(path).URL()
}

// at asks for a page of its own below a path.
func at(path string) func(o *origin.Server, i int) *corev1.ConfigMap {
	return func(o *origin.Server, i int) *corev1.ConfigMap {
		return asking(fmt.Sprintf("hostile-%d", i), "mydata="+o.Page(fmt.Sprintf("%s/%d", path, i)).URL())
	}
}

// refused has no room for a status.
func refused(o *origin.Server, i int) *corev1.ConfigMap {
	var pairs strings.Builder
	for n := range pairsEach {
		fmt.Fprintf(&pairs, "k%d=%s ", n, o.Page(fmt.Sprintf("/quick/%d/%d", i, n)).URL())
	}
	object := asking(fmt.Sprintf("hostile-%d", i), pairs.String())
	object.Annotations["filler"] = strings.Repeat("x", filled-pairs.Len())
	return object
}

func changing(o *origin.Server, i int) *corev1.ConfigMap {
	object := at("/changing")(o, i)
	object.Annotations["x-kv8s.io/curl-refresh"] = "10s"
	return object
}

// behave answers in place of the site: by the first part of the path.
func behave(http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		how, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		switch how {
		case "hang":
			<-r.Context().Done()
		case "slow":
			if system.Pause(r.Context(), time.Second) == nil {
				_, _ = w.Write([]byte("slow"))
			}
		case "busy":
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusTooManyRequests)
		case "changing":
			_, _ = w.Write([]byte(strings.Repeat(fmt.Sprintf("%08x", rand.Uint32()), largeBody/8)))
		default:
			_, _ = w.Write([]byte("quick"))
		}
	})
}
