package apply_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kv8s/curl-me-that/deploy/testkit/promise"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/status"
)

// errRefused is the error of a dial to an unavailable server.
var errRefused = errors.New("connection refused")

// modelServer is an API server with one ConfigMap that can be checked at every step. It has the features of a
// real one that the writer needs: merge patches bound to uid and resourceVersion, and managedFields.
type modelServer struct {
	// object is nil if it does not exist.
	object *corev1.ConfigMap
	// owners has the owners of the keys in data and binaryData. Nil means that there is no record.
	owners map[string]owner
	// version is the last resourceVersion and the clock of managedFields.
	version int
	events  map[string]corev1.Event
	// before runs before each request, and may change anything.
	before func()
	// fault may fail a request before or after it is served.
	fault func(r *http.Request) (lost, refused bool)
	// patched is called for each accepted patch.
	patched func(before, after *corev1.ConfigMap, owners map[string]owner)
	patches int
	// applied are the keys of the last patch.
	applied []string
}

// owner is a field manager with the time of its last write.
type owner struct {
	manager string
	at      int
}

// RoundTrip implements http.RoundTripper.
func (m *modelServer) RoundTrip(r *http.Request) (*http.Response, error) {
	m.before()
	lost, refused := m.fault(r)
	if refused {
		return nil, errRefused
	}
	response, err := m.serve(r)
	if lost {
		return nil, errRefused
	}
	return response, err
}

func (m *modelServer) serve(r *http.Request) (*http.Response, error) {
	metadataOnly := strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata")
	switch {
	case r.Method == http.MethodPost:
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		var e corev1.Event
		if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, &e); err != nil {
			return nil, err
		}
		if _, exists := m.events[e.Name]; exists {
			return refusal(http.StatusConflict, metav1.StatusReasonAlreadyExists)
		}
		m.events[e.Name] = e
		return answer(http.StatusCreated, &e)
	case m.object == nil:
		return refusal(http.StatusNotFound, metav1.StatusReasonNotFound)
	case r.Method == http.MethodPatch:
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		if !m.patch(body) {
			return refusal(http.StatusConflict, metav1.StatusReasonConflict)
		}
		if r.Header.Get("Content-Type") == string(types.ApplyPatchType) && m.owners == nil {
			m.begin()
		}
	}
	if !metadataOnly {
		return answer(http.StatusOK, m.whole())
	}
	return answer(http.StatusOK, &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
		ObjectMeta: m.whole().ObjectMeta,
	})
}

// whole returns the object with its managedFields.
func (m *modelServer) whole() *corev1.ConfigMap {
	whole := m.object.DeepCopy()
	whole.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
	whole.ManagedFields = m.record()
	return whole
}

// patch applies a merge patch (RFC 7386) if it fits the object.
func (m *modelServer) patch(body []byte) bool {
	var p struct {
		Metadata struct {
			UID             types.UID
			ResourceVersion string
			Annotations     map[string]*string
		}
		Data       map[string]*string
		BinaryData map[string]*[]byte
	}
	if err := json.Unmarshal(body, &p); err != nil {
		panic(err)
	}
	if p.Metadata.UID != m.object.UID || p.Metadata.ResourceVersion != m.object.ResourceVersion {
		return false
	}
	before, next := m.object, m.object.DeepCopy()
	merge(&next.Annotations, p.Metadata.Annotations)
	merge(&next.Data, p.Data)
	merge(&next.BinaryData, p.BinaryData)
	m.patches++
	m.applied = slices.Concat(slices.Collect(maps.Keys(p.Data)), slices.Collect(maps.Keys(p.BinaryData)))
	owned := maps.Clone(m.owners)
	m.replace(next, annotation.FieldManager)
	m.patched(before, m.object, owned)
	return true
}

// begin starts a record of owners at an apply: earlier keys belong to before-first-apply, and new
// ones to the writer.
func (m *modelServer) begin() {
	m.owners = map[string]owner{}
	for key := range values(m.object) {
		m.owners[key] = owner{manager: "before-first-apply", at: m.version - 1}
	}
	for _, key := range m.applied {
		m.owners[key] = owner{manager: annotation.FieldManager, at: m.version}
	}
}

func merge[V any](into *map[string]V, from map[string]*V) {
	for key, value := range from {
		if value == nil {
			delete(*into, key)
			continue
		}
		if *into == nil {
			*into = map[string]V{}
		}
		(*into)[key] = *value
	}
}

// replace stores an object and records the owner of each change.
func (m *modelServer) replace(next *corev1.ConfigMap, manager string) {
	m.version++
	next.ResourceVersion = strconv.Itoa(m.version)
	if m.owners != nil {
		was, is := values(m.object), values(next)
		for key := range was {
			if _, exists := is[key]; !exists {
				delete(m.owners, key)
			}
		}
		for key, value := range is {
			if old, existed := was[key]; !existed || old != value {
				m.owners[key] = owner{manager: manager, at: m.version}
			}
		}
	}
	m.object = next
}

// values merges data and binaryData.
func values(cm *corev1.ConfigMap) map[string]string {
	all := map[string]string{}
	if cm == nil {
		return all
	}
	maps.Copy(all, cm.Data)
	for key, value := range cm.BinaryData {
		if _, both := all[key]; both {
			panic("key " + key + " is in data and in binaryData")
		}
		all[key] = string(value)
	}
	return all
}

// record returns managedFields.
func (m *modelServer) record() []metav1.ManagedFieldsEntry {
	if m.owners == nil {
		return nil
	}
	entry := func(manager string, at int, fields string) metav1.ManagedFieldsEntry {
		when := metav1.NewTime(time.Unix(int64(at), 0))
		return metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &when,
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
		}
	}
	list := []metav1.ManagedFieldsEntry{
		entry("author", 1, `{"f:metadata":{"f:annotations":{"f:`+annotation.DefaultKey+`":{}}}}`),
	}
	for _, key := range slices.Sorted(maps.Keys(m.owners)) {
		o := m.owners[key]
		list = append(list, entry(o.manager, o.at, fmt.Sprintf(`{"f:data":{"f:%s":{}}}`, key)))
	}
	return list
}

func answer(code int, object any) (*http.Response, error) {
	body, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(body)),
	}, nil
}

func refusal(code int32, reason metav1.StatusReason) (*http.Response, error) {
	return answer(int(code), &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: code, Reason: reason,
	})
}

// check compares a patch of the writer with the promises.
func (m *model) check(before, after *corev1.ConfigMap, owners map[string]owner) {
	m.t.Helper()
	m.log("  patched: rv %s data %q status %s", after.ResourceVersion, values(after),
		after.Annotations[annotation.StatusKey])
	checker := promise.Checker{Grammar: grammar, Served: func(url string, body []byte) bool {
		parts := strings.Split(strings.TrimPrefix(string(body), "\xff"), "|")
		return len(parts) == 3 && parts[0] == url && parts[1] == string(before.UID) // else S3: it is another object's
	}}
	for _, broken := range checker.CheckWrite(before, after) {
		if strings.HasPrefix(broken, "W1") && m.cancels() {
			continue
		}
		m.broken("%s", broken)
	}
	noted, written := m.status(before), m.status(after)
	is := values(after)
	for _, key := range modelKeys {
		value, exists := is[key]
		if o, owned := owners[key]; !exists && owned && o.manager != annotation.FieldManager {
			m.broken("S4: key %s of %s was removed", key, o.manager)
		}
		if exists && value != values(before)[key] {
			m.checkOrder(string(before.UID)+"/"+key, noted.Keys[key], written.Keys[key])
		}
		m.checkEntry(after, key, noted.Keys[key], written.Keys[key], is)
	}
}

// cancels reports whether the batch has several results of a key. They may cancel out, as a failure and the recovery
// from it do, and then the patch only has their fence.
func (m *model) cancels() bool {
	seen := map[string]bool{}
	return slices.ContainsFunc(m.batch, func(r *v1.Result) bool {
		before := seen[r.GetWant().GetKey()]
		seen[r.GetWant().GetKey()] = true
		return before
	})
}

func (m *model) status(cm *corev1.ConfigMap) status.Status {
	return suitetest.Sure(status.Parse(cm.Annotations[annotation.StatusKey]))
}

// checkOrder checks that a value comes from a newer trigger than the one before.
func (m *model) checkOrder(id string, noted, written status.Entry) {
	m.t.Helper()
	// A trigger may fail and succeed when it is delivered again.
	if last := m.applied[id]; !written.Fence.Newer(last) && !(written.Fence == last && noted.Failing()) {
		m.broken("W1: %s was written by %v after %v", id, written.Fence, last)
	}
	m.applied[id] = written.Fence
}

// checkEntry checks a status entry and collects the Events that it requires.
func (m *model) checkEntry(after *corev1.ConfigMap, key string, noted, written status.Entry, is map[string]string) {
	m.t.Helper()
	id := string(after.UID) + "/" + key
	if noted.Fence.Newer(written.Fence) && written != (status.Entry{}) {
		m.broken("the fence of key %s went back", key)
	}
	if written == (status.Entry{}) {
		delete(m.applied, id)
		return
	}
	if written != noted && !written.Failing() {
		if value, exists := is[key]; !exists || hash(value) != written.SHA256 {
			m.broken("status claims that key %s holds %s", key, written.SHA256)
		}
	}
	events := m.required
	if m.lost {
		events = m.possible // the state may be over before the next attempt
	}
	switch {
	case written.Error == "KeyExists" && written.Fence == noted.Fence:
		// The watcher asked for it and emits the Event, unless the same trigger was delivered twice.
		m.possible[string(after.UID)+" KeyExists"] = true
	case written.Failing() && (written.Error != noted.Error || written.FailingURL() != noted.FailingURL()):
		events[string(after.UID)+" "+written.Error] = true
	case noted.Failing() && !written.Failing():
		events[string(after.UID)+" Recovered"] = true
	}
}

// calm ends all interference and checks the final state of every key.
func (m *model) calm() {
	m.t.Helper()
	m.peace = true
	m.log("calm")
	if m.server.object == nil {
		m.recreate()
	}
	next := m.server.object.DeepCopy()
	delete(next.Annotations, "x-kv8s.io/curl-suspend")
	m.server.replace(next, "person")
	for range 30 {
		m.drain()
		if m.settled() {
			m.checkEvents()
			m.checkRest()
			return
		}
		m.wants, m.seqs = nil, nil
		m.watch()
		for n, w := range m.wants {
			m.answer(w, m.seqs[n], false)
		}
	}
	m.broken("L1: the object does not settle: %q %v", values(m.server.object), m.server.object.Annotations)
}

// drain applies all pending results.
func (m *model) drain() {
	m.t.Helper()
	for range 200 {
		if len(m.queue) == 0 {
			return
		}
		m.write()
	}
	m.broken("M1: results are never acknowledged")
}

// settled reports whether all annotated keys have their value and no other key of ours is left.
func (m *model) settled() bool {
	cm := m.server.whole()
	request, err := grammar.Parse(cm.Annotations)
	noted := m.status(cm)
	if request.ProblemText(err) != problem(noted) {
		return false
	}
	if err != nil {
		return true
	}
	for _, pair := range request.Pairs {
		e := noted.Keys[pair.Key]
		if !e.HasBody() && explains(e, pair) {
			continue // S4
		}
		value, exists := values(cm)[pair.Key]
		if !exists || e.URL != pair.URL || e.Failing() || hash(value) != e.SHA256 {
			return false
		}
	}
	for key := range noted.Keys {
		if _, asked := request.URL(key); !asked {
			return false
		}
	}
	return true
}

// checkEvents checks that the current object has an Event for each change of state, and no other Events.
func (m *model) checkEvents() {
	m.t.Helper()
	emitted := map[string]bool{}
	for _, e := range m.server.events {
		emitted[string(e.InvolvedObject.UID)+" "+e.Reason] = true
	}
	for event := range m.required {
		if !emitted[event] && !m.muted && strings.HasPrefix(event, string(m.server.object.UID)+" ") {
			m.broken("L3: there is no Event %s", event)
		}
	}
	for event := range emitted {
		// A failure and its end in one batch have two Events, but the status shows only the end.
		if !m.required[event] && !m.possible[event] && !strings.HasSuffix(event, " Recovered") {
			m.broken("L3: there is an Event %s, but it did not happen", event)
		}
	}
}

// checkRest checks that redelivered results change nothing after some rounds. In the first ones they may: a result
// that was late may match the annotation now, its trigger may have failed before it succeeded, and another result of
// its batch may need the values, which prove more than an object without managedFields.
func (m *model) checkRest() {
	m.t.Helper()
	for range 4 {
		patches, events := m.server.patches, m.countEvents()
		m.queue = append(m.queue, m.done...)
		m.drain()
		if m.server.patches == patches && m.countEvents() == events {
			return
		}
	}
	m.broken("W1, L3: redelivered results are written, or have Events, again and again")
}

// countEvents counts Events except KeyExists, which is emitted again when the other owner writes again.
func (m *model) countEvents() (n int) {
	for _, e := range m.server.events {
		if e.Reason != "KeyExists" {
			n++
		}
	}
	return n
}
