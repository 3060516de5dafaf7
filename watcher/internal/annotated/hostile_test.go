package annotated_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
)

// maxObjectBytes is the maximum memory of an object, whatever its metadata is, and maxStatusBytes that of one with the
// largest status. deploy/docs/security.md has them.
const maxObjectBytes, maxStatusBytes = 64 << 10, 160 << 10

func TestAHostileObjectTakesLittleMemory(t *testing.T) {
	const prefix, huge = "x-kv8s.io/", 250_000
	x := func(n int) string { return strings.Repeat("x", n) }
	repeat := func(n int, format string) string {
		var all strings.Builder
		for i := range n {
			fmt.Fprintf(&all, format, i)
		}
		return all.String()
	}
	many := func(n int, format string) map[string]string {
		all := map[string]string{}
		for i := range n {
			all[fmt.Sprintf(format, i)] = ""
		}
		return all
	}
	with := func(value string, more ...string) map[string]string {
		all := asks(value)
		for i := 0; i < len(more); i += 2 {
			all[prefix+more[i]] = more[i+1]
		}
		return all
	}
	statusOf := func(n int, entry string) string {
		return "{" + strings.TrimSuffix(repeat(n, `"`+x(200)+`%d":`+entry+","), ",") + "}"
	}
	keys := repeat(128, "k%d=e.example.com ")
	failing := `{"url":"https://e.example.com/` + x(200) + `","sha256":"` + strings.Repeat("0", 64) +
		`","error":"Timeout","errorUrl":"` + x(100) + `","message":"` + x(300) + `","checkedOwner":"` + x(20) +
		`","uidMark":"y"}`
	fields := `{"f:data":{` + strings.TrimSuffix(repeat(2000, `"f:`+x(90)+`%d":{},`), ",") + `,"f:k1":{}}}`
	for name, m := range map[string]metav1.ObjectMeta{
		"1,000 annotations with a typo": {Annotations: many(1000, prefix+"curl-me-%d")},
		"labels with a typo":            {Labels: many(900, prefix+"curl-me-tha%d")},
		"128 long keys":                 {Annotations: asks(repeat(128, x(240)+"%d=a "))},
		"128 long URLs":                 {Annotations: asks(repeat(128, "k%d=E.example.com/"+x(230)+" "))},
		"128 rejected keys":             {Annotations: asks(repeat(128, x(240)+"%d=ftp://b "))},
		"an invalid annotation":         {Annotations: asks(x(huge))},
		"a long curl-now":               {Annotations: with("a=b", "curl-now", x(huge))},
		"a padded curl-refresh":         {Annotations: with("a=b", "curl-refresh", "a=1h"+strings.Repeat(" ", huge))},
		"128 intervals and digests": {Annotations: with(keys, "curl-refresh", repeat(128, "k%d=1h "), "curl-sha256",
			repeat(128, "k%d="+strings.Repeat("0", 64)+" "))},
		"rules and mistakes in rules": {Annotations: with(keys, "curl-expect", strings.Repeat("k1=(\n", 1600),
			"curl-select", repeat(128, "k%d=body + '"+x(40)+"'\n"))},
		"a status with 257 entries": {Annotations: with("a=b", "curl-status", statusOf(257, failing))},
		"a status with a long entry": {Annotations: with("a=b", "curl-status",
			statusOf(1, `{"error":"x","message":"`+x(huge)+`"}`))},
		"a status with a long problem": {Annotations: with("a=b", "curl-status",
			`{"*":{"error":"x","message":"`+x(huge)+`"}}`)},
		"managedFields of other owners":  {Annotations: asks(keys), ManagedFields: managed(t, 8, fields)},
		"managedFields of many managers": {Annotations: asks(keys), ManagedFields: managed(t, 900, `{"f:data":{"f:k1":{}}}`)},
		"ownerReferences": {Annotations: asks("a=b"), OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: x(huge), Name: x(huge), UID: "u", Controller: new(true),
		}}},
		"finalizers": {Annotations: asks("a=b"), Finalizers: strings.Fields(strings.Repeat("example.com/"+x(50)+" ", 4000))},
	} {
		const objects = 16
		m.Namespace, m.Name, m.UID, m.ResourceVersion = "ns", strings.Repeat("n", 253), "12345678-1234", "1"
		text, err := json.Marshal(&metav1.PartialObjectMetadata{ObjectMeta: m})
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		r := reader(t)
		kept := make([]*annotated.Object, objects)
		before := heap()
		for i := range kept {
			var decoded metav1.PartialObjectMetadata
			NewWithT(t).Expect(json.Unmarshal(text, &decoded)).To(Succeed())
			kept[i] = r.Read(&decoded)
			NewWithT(t).Expect(kept[i]).NotTo(BeNil(), name)
		}
		each := (heap() - before) / objects
		limit := maxObjectBytes
		if strings.Contains(name, "257 entries") {
			limit = maxStatusBytes
		}
		t.Logf("%s: %d bytes", name, each)
		NewWithT(t).Expect(each).To(BeNumerically("<=", limit), name)
		runtime.KeepAlive(kept)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC() // interned strings go with the second
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// managed returns entries of managedFields.
func managed(t *testing.T, n int, fields string) (all []metav1.ManagedFieldsEntry) {
	t.Helper()
	for i := range n {
		all = append(all, metav1.ManagedFieldsEntry{
			Manager: fmt.Sprintf("%s%d", strings.Repeat("m", 100), i), Operation: metav1.ManagedFieldsOperationUpdate,
			FieldsType: "FieldsV1", Time: &metav1.Time{Time: time.Unix(int64(i), 0)}, FieldsV1: metav1.NewFieldsV1(fields),
		})
	}
	return all
}
