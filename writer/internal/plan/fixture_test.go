package plan_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

const (
	theKey = "mydata"
	theURL = "https://data.example.com/x?token=secret"
	epoch  = 1_700_000_000_000
)

// noon is the current time in all tables.
var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// fixture describes a ConfigMap.
type fixture struct {
	annotations map[string]string
	labels      map[string]string
	// owners has the managers that own the key. Nil means that there is no record.
	owners map[string]bool
	// half means that the record lacks the annotation, because somebody removed entries.
	half bool
	// values is nil unless the whole object was read.
	values    map[string]string
	status    map[string]status.Entry
	freshness plan.Freshness
	// obstacle is the refusal that the API server reported.
	obstacle plan.Obstacle
	// history has bodies by digest.
	history map[string][]byte
}

// asking returns an object that is annotated with the key and does not have it.
func asking() fixture {
	return fixture{
		annotations: map[string]string{annotation.DefaultKey: theKey + "=" + theURL},
		owners:      map[string]bool{}, freshness: plan.Live,
	}
}

func (f fixture) ownedBy(managers ...string) fixture {
	f.owners = map[string]bool{}
	for _, manager := range managers {
		f.owners[manager] = true
	}
	return f
}

// appliedBefore sets the manifest of the last kubectl apply.
func (f fixture) appliedBefore(manifest string) fixture {
	return f.annotated("kubectl.kubernetes.io/last-applied-configuration", manifest)
}

func (f fixture) unrecorded() fixture {
	f.owners = nil
	return f
}

func (f fixture) holding(body string) fixture {
	f.values = map[string]string{theKey: digest(body)}
	return f
}

func (f fixture) empty() fixture {
	f.values = map[string]string{}
	return f
}

func (f fixture) noted(e status.Entry) fixture {
	f.status = map[string]status.Entry{theKey: e}
	return f
}

// wrote has the status of a body that we wrote.
func (f fixture) wrote(body string) fixture { return f.noted(wrote(body)) }

// failing has the status of a failure without a body.
func (f fixture) failing(reason string) fixture { return f.noted(failing(status.Entry{}, reason)) }

func (f fixture) annotated(name, value string) fixture {
	copied := map[string]string{name: value}
	for k, v := range f.annotations {
		if _, set := copied[k]; !set {
			copied[k] = v
		}
	}
	f.annotations = copied
	return f
}

func (f fixture) without(name string) fixture {
	f = f.annotated(name, "")
	delete(f.annotations, name)
	return f
}

func (f fixture) labelled(name, value string) fixture {
	f.labels = map[string]string{name: value}
	return f
}

// planned returns the plan for items of an object, and the status that it writes.
func planned(t *testing.T, k known, items ...plan.Item) (plan.Plan, status.Status) {
	t.Helper()
	p, _ := k.plan(plan.Planner{Prune: true}, items...)
	s, err := status.Parse(p.Status)
	NewWithT(t).Expect(err).NotTo(HaveOccurred(), p.Status)
	return p, s
}

// eventOf returns the only Event of a plan.
func eventOf(t *testing.T, object fixture, item plan.Item) plan.Event {
	t.Helper()
	p, _ := object.object().plan(plan.Planner{Prune: true}, item)
	NewWithT(t).Expect(p.Decisions[0].Events).To(HaveLen(1))
	return p.Decisions[0].Events[0]
}

func (f fixture) seen(freshness plan.Freshness) fixture {
	f.freshness = freshness
	return f
}

func (f fixture) behind(obstacle plan.Obstacle) fixture {
	f.obstacle = obstacle
	return f
}

// known is an object as the planner sees it.
type known struct {
	*plan.Object
	plan.Memory
}

func (k known) plan(p plan.Planner, items ...plan.Item) (plan.Plan, plan.Need) {
	return p.Plan(k.Object, k.Memory, items)
}

// object returns the object as the planner sees it.
func (f fixture) object() known {
	if s := (status.Status{Keys: f.status}).String(); s != "" {
		f = f.annotated(annotation.StatusKey, s)
	}
	meta := &metav1.ObjectMeta{
		UID: "uid-1", ResourceVersion: "7", Annotations: f.annotations, Labels: f.labels,
		ManagedFields: records(f.owners),
	}
	if f.half {
		meta.ManagedFields[0].FieldsV1 = metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:a":{}}}}`)
	}
	o := decoder().Decode(meta, f.freshness)
	o.Values = f.values
	return known{o, plan.Memory{Obstacle: f.obstacle, History: f.history}}
}

func decoder() plan.Decoder {
	return plan.Decoder{
		Grammar:  suitetest.Sure(annotation.New(annotation.Defaults())),
		Selector: suitetest.Sure(labels.Parse(annotation.Selector)),
	}
}

// records returns managedFields in which a person owns the annotation and the managers own the key.
func records(owners map[string]bool) []metav1.ManagedFieldsEntry {
	if owners == nil {
		return nil
	}
	at := metav1.NewTime(noon)
	record := func(manager string, fields map[string]any) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1",
			Time: &at, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(string(suitetest.Sure(json.Marshal(fields)))),
		}
	}
	list := []metav1.ManagedFieldsEntry{record("author", map[string]any{
		"f:metadata": map[string]any{"f:annotations": map[string]any{"f:" + annotation.DefaultKey: map[string]any{}}},
	})}
	for manager := range owners {
		list = append(list, record(manager, map[string]any{"f:data": map[string]any{"f:" + theKey: map[string]any{}}}))
	}
	return list
}

// fence returns the fence of a trigger.
func fence(seq uint64) status.Fence { return status.Fence{Epoch: epoch, Seq: seq} }

// wrote is the entry of a key that we wrote at trigger 5.
func wrote(body string) status.Entry {
	return status.Entry{
		URL: theURL, SHA256: digest(body), Size: int64(len(body)), ChangedAt: noon.Add(-time.Hour), Fence: fence(5),
	}
}

// failing returns e failing since an hour ago. Refusals have no attempts.
func failing(e status.Entry, reason string) status.Entry {
	e.Error, e.Since = reason, noon.Add(-time.Hour)
	if e.Attempts = 1; slices.Contains([]string{"Immutable", "BodyTooLarge", "WriteFailed", "KeyExists"}, reason) {
		e.Attempts = 0
	}
	if e.URL != theURL {
		e.ErrorURL = theURL
	}
	if e.Fence.IsZero() {
		e.Fence = fence(5)
	}
	return e
}

// reworded is the entry of a key after giving up, with the words of an older writer.
func reworded() status.Entry {
	e := givenUp(503, false)
	e.Message = "other words"
	return e
}

// givenUp is the entry of a key after giving up.
func givenUp(code int32, stale bool) status.Entry {
	e := failing(status.Entry{}, "BadStatus")
	e.GaveUp, e.Explanation = true, &status.Explanation{HTTPStatus: code, Stale: stale}
	return e
}

// tried is the entry of a key with pending retries.
func tried(code int32) status.Entry {
	e := givenUp(code, false)
	e.GaveUp = false
	return e
}

// again marks a failure that was reported before.
func again(r *v1.Result) { r.GetFailure().Again = true }

// tenMinutes sets the refresh interval of the want to ten minutes.
func tenMinutes(r *v1.Result) { r.Want.Refresh = durationpb.New(10 * time.Minute) }

// want is the want of all results in the tables.
func want() *v1.Want {
	return &v1.Want{
		Namespace: "ns", Name: "cm", Key: theKey, Uid: "uid-1", ResourceVersion: "7", Url: theURL, Epoch: epoch,
	}
}

// result returns an item for the trigger with a sequence.
func result(seq uint64, change func(*v1.Result)) plan.Item {
	r := &v1.Result{Want: want(), Sequence: seq, Cause: v1.Cause_CAUSE_NEW, ObservedAt: timestamppb.New(noon)}
	change(r)
	return plan.NewItem(r)
}

func content(seq uint64, body string) plan.Item {
	return result(seq, func(r *v1.Result) {
		r.Outcome = &v1.Result_Content{Content: &v1.Content{Body: []byte(body), Sha256: digest(body)}}
	})
}

func unmodified(seq uint64, body string) plan.Item {
	return result(seq, func(r *v1.Result) {
		r.Outcome = &v1.Result_Unmodified{Unmodified: &v1.Unmodified{Sha256: digest(body)}}
	})
}

func failed(seq uint64, class v1.FailureClass, change ...func(*v1.Result)) plan.Item {
	return result(seq, func(r *v1.Result) {
		r.Outcome = &v1.Result_Failure{Failure: &v1.Failure{
			Class: class, StatusCode: 503, Attempts: 1, FirstFailedAt: timestamppb.New(noon),
		}}
		for _, c := range change {
			c(r)
		}
	})
}

// reconcile requests to bring the object in line, including removals.
func reconcile() plan.Item {
	return result(0, func(r *v1.Result) {
		r.Want.Key, r.Want.Url = status.ObjectKey, ""
		r.Outcome = &v1.Result_Sync{Sync: &v1.Sync{Remove: true}}
	})
}

func digest(body string) string { return pipeline.Digest(body) }
