package apply_test

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kv8s/curl-me-that/deploy/testkit/promise"
	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/status"
)

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

func (m *model) status(cm *corev1.ConfigMap) status.Status {
	return must(status.Parse(cm.Annotations[annotation.StatusKey]))
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
	case written.Error == "KeyExists" && written.Fence == noted.Fence: // requested by the watcher, which emits the Event
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
	if err != nil {
		return true
	}
	noted := m.status(cm)
	for _, pair := range request.Pairs {
		e, o := noted.Keys[pair.Key], ownerOf(cm, pair.Key)
		if !e.HasBody() && (o.State == annotation.Foreign || e.Error == "KeyExists") {
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

// checkRest checks that redelivered results change nothing. In the first round they may, because a result that
// was stale may match the annotation now.
func (m *model) checkRest() {
	m.t.Helper()
	m.queue = append(m.queue, m.done...)
	m.drain()
	patches, events := m.server.patches, m.countEvents()
	m.queue = append(m.queue, m.done...)
	m.drain()
	if n := m.server.patches - patches; n > 0 {
		m.broken("W1: %d patches for redelivered results", n)
	}
	if m.countEvents() != events {
		m.broken("L3: an Event was repeated")
	}
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
