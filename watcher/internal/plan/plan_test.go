package plan_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/rule"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/watcher/internal/annotated"
	"github.com/kv8s/curl-me-that/watcher/internal/informer"
	"github.com/kv8s/curl-me-that/watcher/internal/plan"
	"github.com/kv8s/curl-me-that/watcher/internal/wantindex"
)

const (
	epoch = 1000
	url   = "https://example.com"
)

var (
	sum  = strings.Repeat("ab", 32)
	sum2 = strings.Repeat("cd", 32)

	ours    = annotation.Ownership{State: annotation.Ours}
	none    = annotation.Ownership{State: annotation.None, Fingerprint: "none"}
	unknown = annotation.Ownership{State: annotation.Unknown, Fingerprint: "unknown"}
	foreign = annotation.Ownership{State: annotation.Foreign, Fingerprint: "kubectl/Update/T1"}
	later   = annotation.Ownership{State: annotation.Foreign, Fingerprint: "kubectl/Update/T2"}
)

// written is the entry of a key that holds the body of url, written for the
// trigger with the sequence 7.
func written(change ...func(*status.Entry)) *status.Entry {
	e := &status.Entry{URL: url, SHA256: sum, ETag: "etag", Fence: status.Fence{Epoch: epoch, Seq: 7}}
	for _, c := range change {
		c(e)
	}
	return e
}

// on is for an entry that was written on the object with that uid.
func on(uid string) func(*status.Entry) { return func(e *status.Entry) { e.Object = uid } }

func fails(reason string) func(*status.Entry) { return func(e *status.Entry) { e.Error = reason } }

// wanted is a want for url that the stream has at the sequence 7.
func wanted(change ...func(*wantindex.Want)) *wantindex.Want {
	w := wantindex.Of(&v1.Want{Uid: "uid", Url: url, Epoch: epoch}, epoch, 7, time.Unix(0, 0))
	for _, c := range change {
		c(&w)
	}
	return &w
}

func at(seq uint64) func(*wantindex.Want)     { return func(w *wantindex.Want) { w.Fence.Seq = seq } }
func drift(f string) func(*wantindex.Want)    { return func(w *wantindex.Want) { w.Drift = f } }
func bodyLost(w *wantindex.Want)              { w.Finding = wantindex.BodyLost }
func lost(w *wantindex.Want)                  { w.Finding = wantindex.TimerLost }
func answered(w *wantindex.Want)              { w.Resolved = true }
func refreshes(w *wantindex.Want)             { w.Refreshes = true }
func now(value string) func(*wantindex.Want)  { return func(w *wantindex.Want) { w.Now = value } }
func asksElse(w *wantindex.Want)              { w.Digest = [16]byte{1} }
func asking(r annotation.Request) func(*call) { return func(c *call) { c.object.Request = r } }

// ruled adds a rule, and byRules is for an entry of a body that met it.
func ruled(r *annotation.Request) { r.Rules = map[string]rule.Set{"k": {Expect: []string{"true"}}} }
func byRules(e *status.Entry)     { e.Rules = rule.Set{Expect: []string{"true"}}.Digest() }

// call is an object with the one key k.
type call struct {
	object *annotated.Object
	wants  map[string]wantindex.Want
}

// with returns entries with one more.
func with(e annotated.Entries, key string, entry status.Entry) annotated.Entries {
	s := e.Status()
	s.Keys[key] = entry
	return annotated.EntriesOf(s, nil)
}

func about(owner annotation.Ownership, entry *status.Entry, want *wantindex.Want, change ...func(*call)) call {
	c := call{wants: map[string]wantindex.Want{}, object: &annotated.Object{
		Meta:    informer.Meta{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "cm"}, UID: "uid", Version: 5},
		Request: annotation.Request{Present: true, Pairs: []annotation.Pair{{Key: "k", URL: url}}},
		Owners:  map[string]annotation.Ownership{"k": owner},
		Written: time.Unix(1, 0),
	}}
	if entry != nil {
		c.object.Status = with(c.object.Status, "k", *entry)
	}
	if want != nil {
		c.wants["k"] = *want
	}
	for _, change := range change {
		change(&c)
	}
	return c
}

// decision is a plan in short.
type decision struct {
	cause             v1.Cause // of the one want, if any
	cached, readFirst bool
	drift             string
	last              uint64
	conditions        []string
	retract, remove   []string
	inSync, resolved  []string
}

func (c call) decide(t *testing.T) decision {
	t.Helper()
	p := plan.Make(c.object, c.wants, epoch)
	d := decision{retract: p.Retract, remove: p.Remove, inSync: p.InSync, resolved: p.Resolved}
	for _, n := range p.Conditions {
		d.conditions = append(d.conditions, n.Reason+" "+n.Key)
	}
	if len(p.Publish) > 1 {
		t.Fatalf("%d wants for one key", len(p.Publish))
	}
	for _, w := range p.Publish {
		if w.Cause == v1.Cause_CAUSE_UNSPECIFIED || w.Uid != "uid" || w.ResourceVersion != "5" || w.Epoch < epoch || w.Url == "" {
			t.Errorf("want lacks something: %v", w.Want)
		}
		d.cause, d.cached, d.readFirst, d.drift, d.last = w.Cause, w.Cached != nil, w.ReadFirst, w.Drift, w.Last
		if d.cached && (w.Cached.GetSha256() != sum || w.Cached.GetEtag() != "etag") {
			t.Errorf("cached as %v", w.Cached)
		}
	}
	return d
}

func TestMakeOneKey(t *testing.T) {
	t.Parallel()
	k := []string{"k"}
	drifted := []string{"Drifted k"}
	with := func(change func(*annotation.Request)) func(*call) {
		return func(c *call) { change(&c.object.Request) }
	}
	cases := map[string]struct {
		call
		want decision
	}{
		"new":                       {about(none, nil, nil), decision{cause: v1.Cause_CAUSE_NEW}},
		"waiting":                   {about(none, nil, wanted()), decision{}},
		"another url":               {about(none, nil, wanted(asksElse)), decision{cause: v1.Cause_CAUSE_CHANGED, last: 7}},
		"written, then another url": {about(ours, written(func(e *status.Entry) { e.URL = "https://old" }), wanted(asksElse, at(8))), decision{cause: v1.Cause_CAUSE_CHANGED, last: 8}},
		"another value of curl-now": {about(none, nil, wanted(now("1"))), decision{cause: v1.Cause_CAUSE_NOW, last: 7}},
		"nothing on its way":        {about(none, nil, wanted(lost)), decision{cause: v1.Cause_CAUSE_AUDIT, last: 7}},

		"failing":                           {about(none, &status.Entry{Error: "Timeout", Fence: status.Fence{Epoch: epoch, Seq: 7}}, wanted()), decision{resolved: k}},
		"failing, forgotten by the stream":  {about(none, &status.Entry{Error: "Timeout"}, nil), decision{cause: v1.Cause_CAUSE_NEW}},
		"failing, nothing on its way":       {about(none, &status.Entry{Error: "Timeout"}, wanted(lost)), decision{cause: v1.Cause_CAUSE_AUDIT, last: 7}},
		"immutable, nothing on its way":     {about(none, &status.Entry{Error: "Immutable"}, wanted(lost)), decision{}},
		"written, later attempts fail":      {about(ours, written(fails("Timeout")), wanted(answered)), decision{}},
		"the same, forgotten by the stream": {about(ours, written(fails("Timeout")), nil), decision{cause: v1.Cause_CAUSE_NEW}},
		"the same, nothing on its way":      {about(ours, written(fails("Timeout")), wanted(lost, answered)), decision{cause: v1.Cause_CAUSE_AUDIT, last: 7}},

		"as it should be":                          {about(ours, written(), wanted(answered)), decision{}},
		"as it should be for the first time":       {about(ours, written(), wanted()), decision{resolved: k, inSync: k}},
		"as it should be, by an older answer":      {about(ours, written(), wanted(at(8), drift("none"))), decision{inSync: k}},
		"as it should be, forgotten by the stream": {about(ours, written(), nil), decision{cause: v1.Cause_CAUSE_NEW, cached: true}},
		"as it should be, other interval":          {about(ours, written(), wanted(answered), with(func(r *annotation.Request) { r.Refresh = time.Minute })), decision{cause: v1.Cause_CAUSE_CHANGED, cached: true, last: 7}},
		"as it should be, with that digest":        {about(ours, written(), wanted(answered), with(func(r *annotation.Request) { r.SHA256 = map[string]string{"k": sum} })), decision{cause: v1.Cause_CAUSE_CHANGED, cached: true, last: 7}},
		"another digest is asked for":              {about(ours, written(), wanted(answered), with(func(r *annotation.Request) { r.SHA256 = map[string]string{"k": sum2} })), decision{cause: v1.Cause_CAUSE_CHANGED, last: 7}},
		"other rules":                              {about(ours, written(), wanted(answered), with(ruled)), decision{cause: v1.Cause_CAUSE_CHANGED, last: 7}},
		"other rules, forgotten by the stream":     {about(ours, written(), nil, with(ruled)), decision{cause: v1.Cause_CAUSE_NEW}},
		"no rules any more":                        {about(ours, written(byRules), nil), decision{cause: v1.Cause_CAUSE_NEW}},
		"by these rules, forgotten by the stream":  {about(ours, written(byRules), nil, with(ruled)), decision{cause: v1.Cause_CAUSE_NEW, cached: true}},
		"as it should be, to be fetched now":       {about(ours, written(), wanted(answered), with(func(r *annotation.Request) { r.Now = "1" })), decision{cause: v1.Cause_CAUSE_NOW, last: 7}},
		"refreshed, but no timer":                  {about(ours, written(), wanted(answered, lost, refreshes)), decision{cause: v1.Cause_CAUSE_AUDIT, cached: true, last: 7}},
		"held, the last body got lost":             {about(ours, written(), wanted(answered, bodyLost, refreshes)), decision{cause: v1.Cause_CAUSE_AUDIT, last: 7}},
		"refreshed, with its timer":                {about(ours, written(), wanted(answered, refreshes)), decision{}},
		"fetched once, no timer":                   {about(ours, written(), wanted(answered, lost)), decision{}},
		"want of another epoch":                    {about(ours, written(), new(wantindex.Of(&v1.Want{Uid: "uid", Url: url, Epoch: 1}, epoch, 3, time.Time{}))), decision{cause: v1.Cause_CAUSE_CHANGED, cached: true, last: 3, resolved: k}},
		"want of another epoch, unanswered":        {about(none, nil, new(wantindex.Of(&v1.Want{Uid: "uid", Url: url, Epoch: 1}, epoch, 3, time.Time{}))), decision{cause: v1.Cause_CAUSE_CHANGED, last: 3}},
		"garbage":                                  {about(none, nil, new(wantindex.Unreadable(epoch, 3, time.Time{}))), decision{cause: v1.Cause_CAUSE_CHANGED, last: 3}},

		"deleted":                                            {about(none, written(), wanted(answered)), decision{cause: v1.Cause_CAUSE_DRIFT, drift: "none", last: 7, conditions: drifted}},
		"deleted, forgotten by the stream":                   {about(none, written(), nil), decision{cause: v1.Cause_CAUSE_DRIFT, drift: "none", conditions: drifted}},
		"deleted, being repaired":                            {about(none, written(), wanted(at(8), drift("none"))), decision{conditions: drifted}},
		"deleted again after a repair":                       {about(none, written(), wanted(answered, drift("none"))), decision{cause: v1.Cause_CAUSE_DRIFT, drift: "none", last: 7, conditions: drifted}},
		"deleted, the repair fails":                          {about(none, written(fails("Timeout")), wanted(answered, drift("none"))), decision{conditions: drifted}},
		"deleted, the repair got lost":                       {about(none, written(), wanted(at(8), drift("none"), lost)), decision{cause: v1.Cause_CAUSE_AUDIT, drift: "none", last: 8, conditions: drifted}},
		"deleted, to be fetched now":                         {about(none, written(), wanted(at(8), drift("none"), now("1"))), decision{cause: v1.Cause_CAUSE_NOW, drift: "none", last: 8, conditions: drifted}},
		"deleted, being repaired for another url":            {about(none, written(), wanted(at(8), drift("none"), asksElse)), decision{cause: v1.Cause_CAUSE_DRIFT, drift: "none", last: 8, conditions: drifted}},
		"deleted, and to be fetched now":                     {about(none, written(), wanted(answered, now("1"))), decision{cause: v1.Cause_CAUSE_DRIFT, drift: "none", last: 7, conditions: drifted}},
		"deleted, and found lost":                            {about(none, written(), wanted(answered, lost)), decision{cause: v1.Cause_CAUSE_DRIFT, drift: "none", last: 7, conditions: drifted}},
		"deleted, another fetch under way":                   {about(none, written(), wanted(at(8))), decision{cause: v1.Cause_CAUSE_DRIFT, drift: "none", last: 8, conditions: drifted}},
		"deleted, no trace of who did":                       {about(none, written(), wanted(answered), func(c *call) { c.object.Written = time.Time{} }), decision{cause: v1.Cause_CAUSE_DRIFT, drift: "none", readFirst: true, last: 7, conditions: drifted}},
		"edited":                                             {about(foreign, written(), wanted(answered)), decision{cause: v1.Cause_CAUSE_DRIFT, drift: foreign.Fingerprint, readFirst: true, last: 7, conditions: drifted}},
		"edited, being repaired":                             {about(foreign, written(), wanted(at(8), drift(foreign.Fingerprint))), decision{conditions: drifted}},
		"edited again, being repaired":                       {about(later, written(), wanted(at(8), drift(foreign.Fingerprint))), decision{conditions: drifted}},
		"edited to what is right":                            {about(foreign, written(func(e *status.Entry) { e.Drift = foreign.Fingerprint }), wanted(answered, drift(foreign.Fingerprint))), decision{inSync: k}},
		"edited to what is right, written by us since":       {about(ours, written(func(e *status.Entry) { e.Drift = foreign.Fingerprint }), wanted(answered)), decision{}},
		"edited again after that":                            {about(later, written(func(e *status.Entry) { e.Drift = foreign.Fingerprint }), wanted(answered)), decision{cause: v1.Cause_CAUSE_DRIFT, drift: later.Fingerprint, readFirst: true, last: 7, conditions: drifted}},
		"edited while it asked for another url":              {about(foreign, written(func(e *status.Entry) { e.URL = "https://old" }), wanted(asksElse)), decision{cause: v1.Cause_CAUSE_CHANGED, last: 7, resolved: k}},
		"record of owners emptied":                           {about(unknown, written(), wanted(answered)), decision{cause: v1.Cause_CAUSE_DRIFT, drift: "unknown", readFirst: true, last: 7}},
		"record of owners emptied, found to be right":        {about(unknown, written(func(e *status.Entry) { e.Drift = "unknown" }), wanted(answered)), decision{}},
		"never a record of owners":                           {about(unknown, nil, nil), decision{cause: v1.Cause_CAUSE_NEW, readFirst: true}},
		"backup restored":                                    {about(foreign, written(func(e *status.Entry) { e.Fence = status.Fence{Epoch: 5000, Seq: 99} }), nil), decision{cause: v1.Cause_CAUSE_DRIFT, drift: foreign.Fingerprint, readFirst: true, conditions: drifted}},
		"backup of another cluster restored, being repaired": {about(foreign, written(func(e *status.Entry) { e.Fence = status.Fence{Epoch: 5000, Seq: 99} }), wanted(drift(foreign.Fingerprint))), decision{conditions: drifted}},

		"copied with its status":                               {about(foreign, written(on("another")), nil), decision{cause: v1.Cause_CAUSE_NEW, readFirst: true}},
		"copied without its value":                             {about(none, written(on("another")), nil), decision{cause: v1.Cause_CAUSE_NEW, readFirst: true}},
		"copied, by ourselves as far as is recorded":           {about(ours, written(on("another")), nil), decision{cause: v1.Cause_CAUSE_NEW, readFirst: true}},
		"copied, being fetched":                                {about(foreign, written(on("another")), wanted()), decision{}},
		"copied, the fetch got lost":                           {about(foreign, written(on("another")), wanted(lost)), decision{cause: v1.Cause_CAUSE_AUDIT, readFirst: true, last: 7}},
		"a copy put over our status":                           {about(foreign, written(on("another")), wanted(answered)), decision{cause: v1.Cause_CAUSE_DRIFT, readFirst: true, last: 7}},
		"a copy put over our status that asks for another url": {about(foreign, written(on("another")), wanted(answered, asksElse)), decision{cause: v1.Cause_CAUSE_CHANGED, readFirst: true, last: 7}},
		"a copy of a failure, not ours":                        {about(foreign, &status.Entry{Error: "Timeout", Object: "another"}, nil), decision{conditions: []string{"KeyExists k"}}},
		"not copied":                                           {about(ours, written(on("uid")), wanted(answered)), decision{}},

		"replaced without our status":             {about(none, nil, wanted(answered)), decision{cause: v1.Cause_CAUSE_DRIFT, drift: "none", last: 7, conditions: drifted}},
		"status removed, value kept":              {about(ours, nil, wanted(answered)), decision{cause: v1.Cause_CAUSE_DRIFT, last: 7}},
		"replaced and asking for another url":     {about(none, nil, wanted(answered, asksElse)), decision{cause: v1.Cause_CAUSE_CHANGED, last: 7}},
		"status removed, forgotten by the stream": {about(ours, nil, nil), decision{cause: v1.Cause_CAUSE_NEW}},

		"exists, not ours":         {about(foreign, nil, nil), decision{conditions: []string{"KeyExists k"}}},
		"exists, was wanted":       {about(foreign, nil, wanted()), decision{conditions: []string{"KeyExists k"}, retract: k}},
		"exists, fetch had failed": {about(foreign, &status.Entry{Error: "Timeout"}, nil), decision{conditions: []string{"KeyExists k"}}},

		"suspended":             {about(none, nil, wanted(), with(func(r *annotation.Request) { r.Suspended = true })), decision{retract: k}},
		"suspended and invalid": {about(none, nil, nil, func(c *call) { c.object.Request.Suspended, c.object.Invalid = true, errors.New("bad") }), decision{}},
		"suspended and drifted": {about(none, written(), nil, with(func(r *annotation.Request) { r.Suspended = true })), decision{}},
		"invalid":               {about(ours, written(), wanted(answered), asking(annotation.Request{}), func(c *call) { c.object.Invalid = errors.New("bad") }), decision{conditions: []string{"InvalidAnnotation "}, retract: k}},
		"pair refused":          {about(ours, written(), wanted(answered), asking(annotation.Request{Present: true, Problems: []annotation.Problem{{Key: "k", Text: "bad", Refused: true}}})), decision{conditions: []string{"InvalidAnnotation k"}, retract: k}},
		"something odd":         {about(none, nil, nil, with(func(r *annotation.Request) { r.Problems = []annotation.Problem{{Text: "odd"}} })), decision{cause: v1.Cause_CAUSE_NEW, conditions: []string{"InvalidAnnotation "}}},
		"pair taken out":        {about(ours, written(), wanted(answered), asking(annotation.Request{Present: true})), decision{retract: k, remove: k}},
		"pair taken out, forgotten by the stream": {about(ours, written(), nil, asking(annotation.Request{})), decision{remove: k}},
		"pair taken out before it was written":    {about(none, nil, wanted(), asking(annotation.Request{})), decision{retract: k}},
	}
	for name, c := range cases {
		if got := c.decide(t); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, c.want)
		}
	}
}

func TestMakeManyKeys(t *testing.T) {
	t.Parallel()
	c := about(none, nil, nil, asking(annotation.Request{Present: true, Pairs: []annotation.Pair{
		{Key: "a", URL: url}, {Key: "b", URL: url}, {Key: "taken", URL: url},
	}}))
	c.object.Owners = map[string]annotation.Ownership{"a": none, "b": none, "taken": foreign}
	c.object.Status = with(c.object.Status, "gone", *written())
	c.wants["gone"], c.wants["taken"] = *wanted(), *wanted()
	p := plan.Make(c.object, c.wants, epoch)
	var published []string
	for _, w := range p.Publish {
		published = append(published, w.Key)
	}
	for name, pair := range map[string][2][]string{
		"published": {published, {"a", "b"}},
		"retracted": {p.Retract, {"gone", "taken"}},
		"removed":   {p.Remove, {"gone"}},
	} {
		got := slices.Sorted(slices.Values(pair[0]))
		if !slices.Equal(got, pair[1]) {
			t.Errorf("%s %v, want %v", name, got, pair[1])
		}
	}
}

func TestMakeOfNothingRetractsAll(t *testing.T) {
	t.Parallel()
	p := plan.Make(nil, map[string]wantindex.Want{"b": *wanted(), "a": *wanted()}, epoch)
	if want := (plan.Plan{Retract: []string{"a", "b"}}); !reflect.DeepEqual(p, want) {
		t.Errorf("got %+v, want %+v", p, want)
	}
}

func TestWantCarriesTheStatusAsFarAsItCan(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		entries   map[string]status.Entry
		carried   bool
		readFirst bool
	}{
		"its own entry":        {map[string]status.Entry{"k": {Error: "Timeout"}}, true, false},
		"none":                 {nil, false, false},
		"the entry of another": {map[string]status.Entry{"other": {Error: "Timeout"}}, false, true},
		"entries of others":    {map[string]status.Entry{"k": {Error: "Timeout"}, "other": {Error: "Timeout"}}, false, true},
		"too long":             {map[string]status.Entry{"k": {ErrorURL: strings.Repeat("x", 32<<10+1), Error: "Timeout"}}, false, true},
	} {
		call := about(none, nil, nil)
		call.object.Status = annotated.EntriesOf(status.Status{Keys: c.entries}, nil)
		w := plan.Make(call.object, nil, epoch).Publish[0]
		if got := w.Status != ""; got != c.carried || w.ReadFirst != c.readFirst {
			t.Errorf("%s: carried %t, read first %t", name, got, w.ReadFirst)
		}
	}
}

func TestConditionsKeepTheirNameWhileTheStateLasts(t *testing.T) {
	t.Parallel()
	condition := func(c call) plan.Condition {
		t.Helper()
		p := plan.Make(c.object, c.wants, epoch)
		if len(p.Conditions) != 1 {
			t.Fatalf("%d conditions", len(p.Conditions))
		}
		return p.Conditions[0]
	}
	invalid := func(text string, changed int64) call {
		return about(none, nil, nil, func(c *call) { c.object.Invalid, c.object.Written = errors.New(text), time.Unix(changed, 0) })
	}
	next := func(e *status.Entry) { e.Fence.Seq = 9 }
	problem := func(key, rule, text string) call {
		return about(none, nil, nil, func(c *call) {
			c.object.Request = annotation.Request{Present: true, Problems: []annotation.Problem{{Key: key, Rule: rule, Text: text}}}
		})
	}
	for name, c := range map[string]struct {
		a, b plan.Condition
		same bool
	}{
		"pair refused, others changed":  {condition(problem("k", "ftp", "pair 1")), condition(problem("k", "ftp", "pair 2")), true},
		"pair refused, another rule":    {condition(problem("k", "ftp", "pair 1")), condition(problem("k", "user", "pair 1")), false},
		"pair refused, another key":     {condition(problem("k", "ftp", "pair 1")), condition(problem("l", "ftp", "pair 1")), false},
		"not about a pair, other words": {condition(problem("", "rule", "one")), condition(problem("", "rule", "two")), false},
		"invalid, edited elsewhere":     {condition(invalid("bad", 1)), condition(invalid("bad", 2)), true},
		"invalid in another way":        {condition(invalid("bad", 1)), condition(invalid("worse", 1)), false},
		"taken, written again":          {condition(about(foreign, nil, nil)), condition(about(later, nil, nil)), true},
		"drifted, written again":        {condition(about(foreign, written(), nil)), condition(about(later, written(), nil)), true},
		"drifted again after a repair":  {condition(about(none, written(), nil)), condition(about(none, written(next), nil)), false},
	} {
		if same := c.a.Occurrence == c.b.Occurrence; same != c.same {
			t.Errorf("%s: the same is %t, want %t", name, same, c.same)
		}
	}
}

// The writer hears once of a key that somebody else has written: its status has
// that then.
func TestOccupiedKeysAreReportedUntilTheStatusHasThem(t *testing.T) {
	t.Parallel()
	entry := func(reason, url, object string) *status.Entry {
		return &status.Entry{Error: reason, ErrorURL: url, Object: object}
	}
	for name, c := range map[string]struct {
		call
		want bool
	}{
		"not in the status":         {about(foreign, nil, nil), true},
		"in the status":             {about(foreign, entry("KeyExists", url, "uid"), nil), false},
		"by a writer from before":   {about(foreign, entry("KeyExists", url, ""), nil), false},
		"for another URL":           {about(foreign, entry("KeyExists", url+"/other", "uid"), nil), true},
		"in the status of another":  {about(foreign, entry("KeyExists", url, "another"), nil), true},
		"for another reason":        {about(foreign, entry("Timeout", url, "uid"), nil), true},
		"in the status, free again": {about(none, entry("KeyExists", url, "uid"), nil), false},
		"while suspended":           {about(foreign, nil, nil, func(c *call) { c.object.Request.Suspended = true }), false},
	} {
		if p := plan.Make(c.object, c.wants, epoch); p.Report != c.want {
			t.Errorf("%s: reported %t, want %t", name, p.Report, c.want)
		}
	}
}

// What a want leads to must come after what the object holds, whatever became
// of the stream.
func TestEpoch(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		entry *status.Entry
		want  int64
		held  status.Fence
	}{
		"nothing held":        {nil, epoch, status.Fence{}},
		"of this stream":      {written(fails("Timeout")), epoch, status.Fence{Epoch: epoch, Seq: 7}},
		"of a later stream":   {written(fails("Timeout"), laterStream), epoch + 5, status.Fence{Epoch: epoch + 5, Seq: 7}},
		"of another's object": {written(on("another"), laterStream), epoch, status.Fence{}},
	} {
		c := about(ours, tt.entry, nil)
		p := plan.Make(c.object, nil, epoch)
		if len(p.Publish) != 1 || p.Publish[0].GetEpoch() != tt.want || p.Publish[0].Held != tt.held {
			t.Errorf("%s: %+v", name, p.Publish)
		}
	}
}

func laterStream(e *status.Entry) { e.Fence.Epoch = epoch + 5 }
