package apply_test

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kv8s/curl-me-that/proto/annotation"
	"github.com/kv8s/curl-me-that/proto/status"
)

// check holds a patch of the writer against the promises.
func (m *model) check(before, after *corev1.ConfigMap, owners map[string]owner) {
	m.t.Helper()
	m.log("  patched: rv %s data %q status %s", after.ResourceVersion, values(after), after.Annotations[annotation.StatusKey])
	was, is := values(before), values(after)
	noted, written := m.status(before), m.status(after)

	changed := false
	for _, key := range append([]string{"theirs"}, modelKeys...) {
		old, existed := was[key]
		value, exists := is[key]
		if old == value && existed == exists {
			continue
		}
		changed = true
		if key == "theirs" {
			m.broken("S1: a key that nobody asked for was changed")
		}
		m.checkValue(before, key, value, exists, owners, noted.Keys[key], written.Keys[key])
	}
	m.checkAnnotations(before, after)
	if !changed && before.Annotations[annotation.StatusKey] == after.Annotations[annotation.StatusKey] {
		m.broken("W1: a patch changed nothing")
	}
	for _, key := range modelKeys {
		m.checkEntry(after, key, noted.Keys[key], written.Keys[key], is)
	}
}

func (m *model) status(cm *corev1.ConfigMap) status.Status {
	s, err := status.Parse(cm.Annotations[annotation.StatusKey])
	must(m.t, err)
	return s
}

// checkValue checks that a value might be changed, and to this.
func (m *model) checkValue(before *corev1.ConfigMap, key, value string, exists bool, owners map[string]owner, noted, written status.Entry) {
	m.t.Helper()
	if o, owned := owners[key]; owned && o.manager != annotation.FieldManager && !noted.Written() {
		m.broken("S4: key %s of %s, which we never wrote, was changed", key, o.manager)
	}
	grammar, err := annotation.New(annotation.Defaults())
	must(m.t, err)
	request, err := grammar.Parse(before.Annotations)
	url, asked := request.URL(key)
	if err != nil || request.Suspended {
		m.broken("S2: key %s was changed in an object that wants to be left alone", key)
	}
	if !exists {
		if asked {
			m.broken("S2: key %s was removed although it is asked for", key)
		}
		if o, owned := owners[key]; owned && o.manager != annotation.FieldManager {
			m.broken("S4: key %s of %s was removed", key, o.manager)
		}
		return
	}
	parts := strings.Split(strings.TrimPrefix(value, "\xff"), "|")
	switch {
	case len(parts) != 3:
		m.broken("S5: key %s was set to %q", key, value)
	case !asked || parts[0] != url:
		m.broken("S2: key %s was set from %s, which is not asked for", key, parts[0])
	case parts[1] != string(before.UID):
		m.broken("S3: key %s of %s was set for %s", key, before.UID, parts[1])
	case written.SHA256 != hash(value):
		m.broken("status does not tell the digest of key %s", key)
	}
	id := string(before.UID) + "/" + key
	// One trigger may fail and, delivered again, go well.
	if last := m.applied[id]; !written.Fence.Newer(last) && !(written.Fence == last && noted.Failing()) {
		m.broken("W1: key %s was written by %v after %v", key, written.Fence, last)
	}
	m.applied[id] = written.Fence
}

// checkAnnotations checks that only our own was touched.
func (m *model) checkAnnotations(before, after *corev1.ConfigMap) {
	m.t.Helper()
	for _, pair := range [][2]map[string]string{{before.Annotations, after.Annotations}, {after.Annotations, before.Annotations}} {
		for name, value := range pair[0] {
			if other, exists := pair[1][name]; name != annotation.StatusKey && (!exists || other != value) {
				m.broken("S1: annotation %s was changed", name)
			}
		}
	}
}

// checkEntry checks what the status says, and notes the Events that it demands.
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
	demanded := m.transitions
	if m.lost {
		demanded = m.failed // whoever comes next may find the state already over
	}
	switch {
	case written.Error == "KeyExists" && written.Fence == noted.Fence: // by the watcher's cue, who emits the Event
	case written.Failing() && (written.Error != noted.Error || written.FailingURL() != noted.FailingURL()):
		demanded[string(after.UID)+" "+written.Error] = true
	case noted.Failing() && !written.Failing():
		demanded[string(after.UID)+" Recovered"] = true
	}
}

// calm lets all come to rest, and checks that every key ends as it should.
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
	m.broken("L1: it does not come to rest: %q %v", values(m.server.object), m.server.object.Annotations)
}

// drain applies all that waits.
func (m *model) drain() {
	m.t.Helper()
	for range 200 {
		if len(m.queue) == 0 {
			return
		}
		m.write()
	}
	m.broken("M1: results are never settled")
}

// settled tells whether every key that is asked for holds what it should, and
// no other key does that we wrote.
func (m *model) settled() bool {
	cm := m.server.whole()
	grammar, err := annotation.New(annotation.Defaults())
	must(m.t, err)
	request, err := grammar.Parse(cm.Annotations)
	if err != nil {
		return true
	}
	noted := m.status(cm)
	for _, pair := range request.Pairs {
		e, o := noted.Keys[pair.Key], ownerOf(cm, pair.Key)
		if !e.Written() && (o.State == annotation.Foreign || e.Error == "KeyExists") {
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

// checkEvents checks that each change of state was said, but for those that
// were over before they could be.
func (m *model) checkEvents() {
	m.t.Helper()
	said := map[string]bool{}
	for _, e := range m.server.events {
		said[string(e.InvolvedObject.UID)+" "+e.Reason] = true
	}
	for transition := range m.transitions {
		if !said[transition] && !m.muted && strings.HasPrefix(transition, string(m.server.object.UID)+" ") {
			m.broken("L3: %s was not said", transition)
		}
	}
	for event := range said {
		// A failure and its end that wait together are both told, but only the
		// end shows.
		if !m.transitions[event] && !m.failed[event] && !strings.HasSuffix(event, " Recovered") {
			m.broken("L3: %s was said, but did not happen", event)
		}
	}
}

// checkRest checks that what comes again, and again, changes nothing any more.
// Once it may: what was stale then can be asked for now.
func (m *model) checkRest() {
	m.t.Helper()
	m.queue = append(m.queue, m.done...)
	m.drain()
	patches, events := m.server.patches, m.said()
	m.queue = append(m.queue, m.done...)
	m.drain()
	if n := m.server.patches - patches; n > 0 {
		m.broken("W1: %d patches for what was settled before", n)
	}
	if m.said() != events {
		m.broken("L3: something was said twice")
	}
}

// said counts Events. Those about a key of somebody else are left out: they are
// said again when that somebody writes again, as the watcher does.
func (m *model) said() (n int) {
	for _, e := range m.server.events {
		if e.Reason != "KeyExists" {
			n++
		}
	}
	return n
}
