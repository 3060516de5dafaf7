package plan_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/rule"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

const (
	badStatus = v1.FailureClass_FAILURE_CLASS_BAD_STATUS
	timeout   = v1.FailureClass_FAILURE_CLASS_TIMEOUT
)

// expectation is the expected plan for one item.
type expectation struct {
	outcome plan.Outcome
	// value is written to the key. "-" removes the key, and "" keeps it.
	value string
	// events has the reasons of the Events.
	events []string
	// entries matches the written status. Nil means that no status is written.
	entries OmegaMatcher
	// needs is "values", "live" or empty.
	needs string
	// keep means --prune=false.
	keep bool
}

var (
	tooLate     = expectation{outcome: plan.Late}
	isForeign   = expectation{outcome: plan.KeyExists}
	unchanged   = expectation{outcome: plan.Unchanged}
	needsValues = expectation{needs: "values"}
	needsLive   = expectation{needs: "live"}
)

// writes expects a value and its entry.
func writes(value string, entries OmegaMatcher, events ...string) expectation {
	return expectation{outcome: plan.Written, value: value, entries: entries, events: events}
}

// notes expects an entry and no value.
func notes(entries OmegaMatcher, events ...string) expectation { return writes("", entries, events...) }

// puts expects a value at trigger 6.
func puts(value string, events ...string) expectation {
	return writes(value, well(value, 6, ""), events...)
}

// keeps expects a good entry at trigger 6 for the old value.
func keeps(value string, events ...string) expectation { return notes(well(value, 6, ""), events...) }

// says expects only an Event.
func says(event string) expectation {
	return expectation{outcome: plan.Unchanged, events: []string{event}}
}

// keyExists expects a KeyExists entry at trigger seq.
func keyExists(seq uint64) expectation {
	return expectation{outcome: plan.KeyExists, entries: ill("", "KeyExists", seq), events: []string{"KeyExists"}}
}

// refused expects the entry of a refused body with its Event.
func refused(body, reason string, seq uint64) expectation {
	return expectation{outcome: plan.Refused, entries: ill(body, reason, seq), events: []string{reason}}
}

// fails expects the entry of a failure at trigger 6 with its Event.
func fails(body, reason string) expectation { return notes(ill(body, reason, 6), reason) }

func kept(e expectation) expectation {
	e.keep = true
	return e
}

// well matches the entry of a key that holds body since trigger seq.
func well(body string, seq uint64, checked string) OmegaMatcher {
	return HaveKeyWithValue(theKey, And(HaveField("URL", theURL), HaveField("SHA256", digest(body)),
		HaveField("Failing()", false), HaveField("Fence", fence(seq)), HaveField("CheckedFingerprint", checked)))
}

// ill matches the entry of a key that fails and still holds body, which may be empty for none.
func ill(body, reason string, seq uint64) OmegaMatcher {
	held := ""
	if body != "" {
		held = digest(body)
	}
	return HaveKeyWithValue(theKey, And(HaveField("SHA256", held), HaveField("Error", reason),
		HaveField("FailingURL()", theURL), HaveField("Fence", fence(seq))))
}

// dropped matches entries without the key.
func dropped() OmegaMatcher { return Not(HaveKey(theKey)) }

func anything() OmegaMatcher { return Not(BeNil()) }

// expecting is an object with a rule for the key.
func expecting(text string) fixture {
	return asking().annotated("x-kv8s.io/curl-expect", theKey+"="+text)
}

// ruled returns a copy of the result for a want with a rule.
func ruled(i plan.Item) plan.Item {
	i.Result = proto.CloneOf(i.Result)
	i.Result.Want.Expect = []string{"true"}
	if c := i.Result.GetContent(); c != nil {
		c.Rules = rule.SetOf(i.Result.GetWant()).Hash()
	}
	return i
}

// byRules matches the entry of a body that met that rule.
func byRules(seq uint64) OmegaMatcher {
	return And(well("b", seq, ""),
		HaveKeyWithValue(theKey, HaveField("Rules", rule.Set{Expect: []string{"true"}}.Hash())))
}

func TestPlan(t *testing.T) {
	const ours, theirs = annotation.FieldManager, "person"
	const fingerprint = "person/Update/2026-01-02T12:00:00Z"
	var none status.Entry
	absent, mine, foreign, unknown := asking(), asking().ownedBy(ours), asking().ownedBy(theirs), asking().unrecorded()
	removedOwner := asking().holding("b")
	removedOwner.half = true
	elsewhere := asking().annotated(annotation.DefaultKey, theKey+"=https://other.example.com")
	invalid := asking().annotated(annotation.DefaultKey, theKey+"=ftp://data.example.com")
	demanding := func(body string) fixture {
		f := asking().annotated("x-kv8s.io/curl-sha256", theKey+"="+digest(body))
		f.history = map[string][]byte{digest(body): nil} // looked up, and not found
		return f
	}
	longFetch := failing(status.Entry{}, "BodyTooLarge")
	longFetch.Attempts = 1
	rejectedBefore, oldURL := failing(wrote("a"), "WriteFailed"), from("https://old.example.com", wrote("a"))
	unasked, moved := asking().without(annotation.DefaultKey), asking().annotated(annotation.DefaultKey, "other="+theURL)
	legacy := unasked.annotated(annotation.LegacyKey, theKey+"="+theURL)
	suspended := moved.annotated("x-kv8s.io/curl-suspend", "1")
	removed := unasked.ownedBy(ours).wrote("a")
	nonsense := asking().annotated(annotation.DefaultKey, "nonsense")
	a1, b1, a6, b6 := content(1, "a"), content(1, "b"), content(6, "a"), content(6, "b")
	bad := func(change ...func(*v1.Result)) plan.Item { return failed(6, badStatus, change...) }
	late := func(r *v1.Result) { hourAgo(r); gaveUp(r); tenMinutes(r) }
	bad6, badBefore, copiedA := bad(), failing(wrote("a"), "BadStatus"), copied(wrote("a"))
	edited := func(body string) status.Entry { return drifted(wrote(body), fingerprint) }
	driftedB, bad1 := drifted(wrote("b"), "older"), failed(1, badStatus)
	copiedBad, failsA1 := copied(failing(none, "BadStatus")), notes(ill("a", "BadStatus", 1), "BadStatus")
	drops, removes, keepsIt := notes(dropped()), writes("-", dropped()), notes(dropped(), "KeyExists")
	explains, refuses := notes(anything()), expectation{outcome: plan.Refused}
	pinned := demanding("a").ownedBy(ours)
	hourly, bodies := pinned.annotated("x-kv8s.io/curl-refresh", "1h"), map[string][]byte{digest("a"): []byte("a")}
	offered := func(e status.Entry) status.Entry { e.Available = digest("b"); return e }
	older := func(e status.Entry) status.Entry { e.URL = "https://example.com/old"; return e }
	underRules := func(e status.Entry) status.Entry { e.Rules = "former"; return e }
	fromHistory := func(f fixture) fixture { f.history = bodies; return f }
	full := hourly.wrote("b")
	full.history = map[string][]byte{}
	for n := range pipeline.MaxPinsFilled {
		full.history[digest(strconv.Itoa(n))] = nil
	}
	filled := HaveKeyWithValue(theKey, And(HaveField("SHA256", digest("a")), HaveField("URL", "")))
	refilled := writes("a", filled, "Pinned")
	mismatch := failed(6, v1.FailureClass_FAILURE_CLASS_DIGEST_MISMATCH)
	offeredToo := HaveKeyWithValue(theKey, And(HaveField("SHA256", digest("a")), HaveField("Available", digest("c"))))
	stillOffered := HaveKeyWithValue(theKey, And(HaveField("SHA256", digest("a")), HaveField("Available", digest("b"))))
	waits := func(body string) OmegaMatcher {
		return And(well("a", 6, ""), HaveKeyWithValue(theKey, HaveField("Available", body)))
	}
	tells := expectation{outcome: plan.Refused, events: []string{"WriteFailed"}}
	for name, tt := range map[string]struct {
		object fixture
		item   plan.Item
		want   expectation
	}{
		// A body for a key that does not exist, or is ours.
		"first body":                     {asking(), b6, puts("b")},
		"first body, unreadable status":  {asking().annotated(annotation.StatusKey, "{garbage"), b6, puts("b")},
		"changed body":                   {mine.wrote("a"), b6, puts("b")},
		"same body":                      {mine.wrote("a"), a6, unchanged},
		"same body, once drifted":        {mine.noted(drifted(wrote("a"), "older")), a6, unchanged},
		"same body from another URL":     {mine.noted(oldURL), a6, keeps("a")},
		"same body after a failure":      {mine.noted(badBefore), a6, keeps("a", "Recovered")},
		"changed body after a failure":   {mine.noted(badBefore), b6, puts("b", "Recovered")},
		"first body after a failure":     {absent.failing("Timeout"), b6, puts("b", "Recovered")},
		"body of a key that was removed": {absent.wrote("a"), a6, puts("a")},
		"body of our key without status": {mine, a6, puts("a")},
		"same body, some not recorded":   {legacy.ownedBy(ours).wrote("a"), a6, unchanged},

		// A key of another owner.
		"foreign, never ours":             {foreign, b6, keyExists(6)},
		"foreign, never ours, same body":  {foreign.holding("b"), b6, keyExists(6)},
		"foreign, never ours, known":      {foreign.noted(failing(none, "KeyExists")), b6, isForeign},
		"foreign, never ours, failure":    {foreign, bad6, keyExists(6)},
		"foreign, once ours, unread":      {foreign.wrote("a"), a6, needsValues},
		"foreign, once ours, edited":      {foreign.wrote("a").holding("edit"), a6, puts("a")},
		"foreign, once ours, same as new": {foreign.wrote("a").holding("b"), b6, notes(well("b", 6, fingerprint+"~"))},
		"foreign, once ours, as noted":    {foreign.noted(edited("b")).holding("b"), b6, unchanged},
		"foreign, as noted, another body": {foreign.noted(edited("a")).holding("b"), b6, notes(well("b", 6, fingerprint))},
		"foreign, edited again":           {foreign.noted(driftedB).holding("b"), b6, notes(well("b", 6, fingerprint+"~"))},

		// A key without a known owner.
		"unknown, unread":              {unknown, b6, needsValues},
		"unknown, absent":              {unknown.empty(), b6, puts("b")},
		"unknown, present, never ours": {unknown.holding("b"), b6, keyExists(6)},
		"unknown, as we wrote it":      {unknown.wrote("a").holding("a"), b6, writes("b", well("b", 6, "unknown"))},
		"unknown, same as new":         {unknown.wrote("a").holding("b"), b6, notes(well("b", 6, "unknown"))},
		"unknown, nothing to do":       {unknown.noted(drifted(wrote("b"), "unknown")).holding("b"), b6, unchanged},
		"owner removed from record":    {removedOwner, b6, keyExists(6)},

		// The object has another annotation.
		"other URL":               {elsewhere, b6, tooLate},
		"other key":               {moved, b6, tooLate},
		"nothing":                 {unasked, b6, tooLate},
		"nonsense":                {nonsense, b6, tooLate},
		"suspended":               {asking().annotated("x-kv8s.io/curl-suspend", "true"), b6, tooLate},
		"to be ignored":           {asking().labelled("reconciler", "ignore"), b6, tooLate},
		"other digest":            {demanding("x"), b6, tooLate},
		"this digest":             {demanding("b"), b6, puts("b")},
		"failure for another URL": {elsewhere, bad6, tooLate},
		"other spelling":          {legacy, b6, needsValues},
		"failure, this digest":    {demanding("b"), bad6, fails("", "BadStatus")},
		"no outcome":              {asking(), result(6, func(*v1.Result) {}), refuses},
		"no rules":                {asking(), ruled(b6), tooLate},
		"other rules":             {expecting("false"), ruled(b6), tooLate},
		"unevaluated":             {expecting("true"), b6, tooLate},
		"these rules":             {expecting("true"), ruled(b6), writes("b", byRules(6))},
		"accepted by other rules": {expecting("true").ownedBy(ours).noted(wrote("b")), ruled(b6), notes(byRules(6))},
		"failure of other rules":  {asking(), ruled(bad6), tooLate},

		// Another object.
		"other uid":      {asking(), other(content(6, "b")), expectation{outcome: plan.Gone}},
		"other uid, old": {asking().seen(plan.FromPatch), other(content(6, "b")), needsLive},

		// The fence.
		"older":             {mine.wrote("a"), content(4, "b"), tooLate},
		"older, remembered": {mine.wrote("a").seen(plan.FromPatch), content(4, "b"), tooLate},
		"again":             {mine.wrote("a"), content(5, "a"), unchanged},
		"again, failure":    {absent.failing("BadStatus"), failed(5, badStatus), says("BadStatus")},
		"again, obstacle":   {absent.failing("Immutable"), content(5, "b"), says("Immutable")},
		"again, too large":  {absent.failing("BodyTooLarge"), content(5, "b"), says("BodyTooLarge")},
		"again, rejected":   {absent.failing("WriteFailed"), content(5, "b"), says("WriteFailed")},
		"again, in full":    {absent.noted(longFetch), content(5, "b"), writes("b", well("b", 5, ""), "Recovered")},
		"again, long well":  {mine.noted(since(wrote("a"), noon.Add(-time.Hour))), content(5, "a"), unchanged},
		"again, recovery":   {mine.noted(since(wrote("a"), noon)), content(5, "a"), says("Recovered")},
		"again, went well":  {absent.failing("BadStatus"), content(5, "b"), writes("b", well("b", 5, ""), "Recovered")},
		"again, went wrong": {mine.wrote("a"), failed(5, badStatus), unchanged},
		"later stream":      {mine.wrote("a"), epochs(content(1, "b"), epoch+1), writes("b", anything())},
		"earlier stream":    {mine.wrote("a"), epochs(content(99, "b"), epoch-1), tooLate},

		// A status that was copied from another object.
		"copied, unread":                  {foreign.noted(copiedA), b6, needsValues},
		"copied, assumed":                 {mine.noted(copiedA).seen(plan.FromWant), a6, needsValues},
		"copied with its value":           {foreign.noted(copiedA).holding("a"), b1, writes("b", well("b", 1, ""))},
		"copied, same as new":             {foreign.noted(copiedA).holding("a"), a1, notes(well("a", 1, fingerprint+"~"))},
		"copied with its record":          {mine.noted(copiedA).holding("a"), a1, notes(well("a", 1, ""))},
		"copied, then edited":             {foreign.noted(copiedA).holding("x"), b6, keyExists(6)},
		"copied without its value":        {absent.noted(copiedA).empty(), a1, writes("a", well("a", 1, ""))},
		"copied, failure":                 {foreign.noted(copiedA).holding("a"), bad1, failsA1},
		"copied, edited, failure":         {foreign.noted(copiedA).holding("x"), bad1, keyExists(1)},
		"copied failure, well here":       {absent.noted(copiedBad).empty(), b1, writes("b", well("b", 1, ""))},
		"copied, pair removed":            {moved.ownedBy(theirs).noted(copiedA).holding("a"), reconcile(), drops},
		"copied, edited, pair removed":    {moved.unrecorded().noted(copiedA).holding("x"), reconcile(), drops},
		"written here, by an older fence": {mine.noted(on("uid-1", wrote("a"))), content(4, "b"), tooLate},

		// Only a live object is good enough to drop a result.
		"late, remembered":     {unasked.seen(plan.FromPatch), b6, needsLive},
		"foreign, remembered":  {foreign.seen(plan.FromPatch), b6, needsLive},
		"body, remembered":     {mine.wrote("a").seen(plan.FromPatch), b6, puts("b")},
		"same body,remembered": {mine.wrote("a").seen(plan.FromPatch), a6, unchanged},

		// Failures.
		"first failure":             {asking(), bad6, fails("", "BadStatus")},
		"failure after a body":      {mine.wrote("a"), bad6, fails("a", "BadStatus")},
		"other failure":             {absent.failing("BadStatus"), failed(6, timeout), fails("", "Timeout")},
		"same failure":              {absent.failing("BadStatus"), bad(hourAgo), unchanged},
		"tried, other status":       {absent.noted(tried(404)), bad(hourAgo), unchanged},
		"same failure, gave up":     {absent.failing("BadStatus"), bad(hourAgo, gaveUp), fails("", "BadStatus")},
		"same failure, again":       {absent.failing("BadStatus"), bad(again), says("BadStatus")},
		"gave up, again":            {absent.noted(givenUp(503, false)), bad(hourAgo, gaveUp, again), says("BadStatus")},
		"gave up, other status":     {absent.noted(givenUp(404, false)), bad(hourAgo, gaveUp, again), fails("", "BadStatus")},
		"gave up, other words":      {absent.noted(reworded()), bad(hourAgo, gaveUp, again), fails("", "BadStatus")},
		"longer than interval":      {absent.noted(givenUp(503, false)), bad(late, again), fails("", "BadStatus")},
		"longer, known":             {absent.noted(givenUp(503, true)), bad(late), unchanged},
		"tried again":               {absent.noted(givenUp(503, true)), bad(hourAgo, tenMinutes), fails("", "BadStatus")},
		"same failure, later start": {absent.failing("BadStatus"), bad6, notes(ill("", "BadStatus", 6))},
		"same failure, audit":       {absent.failing("BadStatus"), bad(audit), unchanged},
		"failure of a new URL":      {mine.noted(failing(oldURL, "BadStatus")), failed(6, timeout), fails("a", "Timeout")},
		"unknown class":             {asking(), failed(6, 99), fails("", "Unknown")},
		"failure, unknown, unread":  {unknown, bad6, needsValues},
		"failure, unknown, absent":  {unknown.empty(), bad6, fails("", "BadStatus")},
		"failure, unknown, present": {unknown.holding("x"), bad6, keyExists(6)},

		// Recovery without a body.
		"unmodified":              {mine.noted(failing(wrote("a"), "Timeout")), unmodified(6, "a"), keeps("a", "Recovered")},
		"unmodified, was well":    {mine.wrote("a"), unmodified(6, "a"), unchanged},
		"unmodified, other body":  {mine.noted(failing(wrote("b"), "Timeout")), unmodified(6, "a"), tooLate},
		"unmodified, never ours":  {foreign, unmodified(6, "a"), tooLate},
		"unmodified, unannotated": {unasked.noted(failing(wrote("a"), "Timeout")), unmodified(6, "a"), tooLate},
		"unmodified, another URL": {mine.noted(oldURL), unmodified(6, "a"), keeps("a")},

		// Pinned keys.
		"pinned, other body":    {pinned.wrote("a"), b6, tooLate},
		"pinned, offered":       {hourly.wrote("a"), b6, notes(waits(digest("b")), "UpdateAvailable")},
		"pinned, offered again": {hourly.noted(offered(wrote("a"))), b6, unchanged},
		"pinned, offered by another URL": {
			hourly.noted(offered(older(wrote("a")))), b6, notes(And(filled, stillOffered)),
		},
		"pinned, offered under other rules": {
			hourly.noted(offered(underRules(wrote("a")))), b6, notes(stillOffered),
		},
		"pinned, held, failing": {
			fromHistory(pinned.noted(failing(wrote("a"), "ConnectFailed"))), reconcile(), unchanged,
		},
		"pinned, held, mismatched": {
			fromHistory(pinned.noted(failing(wrote("a"), "DigestMismatch"))), reconcile(), refilled,
		},
		"pinned, no longer offered": {hourly.noted(offered(wrote("a"))), a6, notes(waits(""))},
		"pinned, in the history":    {fromHistory(pinned.wrote("b")), reconcile(), refilled},
		"pinned, edited":            {fromHistory(pinned.ownedBy(theirs).wrote("a")), reconcile(), refilled},
		"pinned, held":              {fromHistory(pinned.wrote("a")), reconcile(), unchanged},
		"pinned, of somebody else":  {fromHistory(pinned.ownedBy(theirs)), reconcile(), explains},
		"pinned, reconcile lost, other content": {
			fromHistory(hourly.wrote("b")), content(6, "c"), writes("a", offeredToo, "Pinned", "UpdateAvailable"),
		},
		"pinned, reconcile lost, mismatch": {fromHistory(pinned.wrote("b")), mismatch, refilled},
		"pinned, reconcile lost, failure": {
			fromHistory(hourly.wrote("b")), bad6, writes("a", ill("a", "BadStatus", 6), "Pinned", "BadStatus"),
		},
		"pinned, removed by hand, offered again": {
			fromHistory(hourly.ownedBy().empty().noted(offered(wrote("a")))), b6, writes("a", stillOffered, "Pinned"),
		},
		"pinned, edited by hand, offered again": {
			fromHistory(hourly.ownedBy(theirs).noted(offered(wrote("a")))), b6, writes("a", stillOffered, "Pinned"),
		},
		"pinned, reconcile refused": {
			fromHistory(hourly.wrote("b").behind(plan.Rejected)), content(6, "c"), refused("b", "WriteFailed", 5),
		},
		"pinned, one too many for the history": {full, content(6, "c"), expectation{outcome: plan.Deferred}},
		"pinned, not in the history, mismatch": {pinned.wrote("b"), mismatch, fails("b", "DigestMismatch")},

		// Removed pairs.
		"removed, ours":               {removed, reconcile(), removes},
		"removed, ours, kept":         {removed, reconcile(), kept(drops)},
		"removed, ours, no status":    {unasked.ownedBy(ours), reconcile(), unchanged},
		"removed, unknown, no status": {moved.unrecorded(), reconcile(), unchanged},
		"removed, shared":             {unasked.ownedBy(ours, theirs).wrote("a"), reconcile(), keepsIt},
		"removed, applied":            {removed.appliedBefore(`{"data":{"mydata":"x"}}`), reconcile(), keepsIt},
		"removed, applied binary":     {removed.appliedBefore(`{"binaryData":{"mydata":"eA=="}}`), reconcile(), keepsIt},
		"removed, other applied":      {removed.appliedBefore(`{"data":{"other":"x"}}`), reconcile(), removes},
		"removed, unreadable":         {removed.appliedBefore(`{"data":{"mydata":`), reconcile(), removes},
		"removed, taken over":         {moved.ownedBy(theirs).wrote("a"), reconcile(), drops},
		"removed, already gone":       {moved.wrote("a"), reconcile(), drops},
		"removed, only failed":        {moved.noted(failing(none, "Timeout")), reconcile(), drops},
		"removed, nothing left":       {moved, reconcile(), unchanged},
		"still annotated":             {mine.wrote("a"), reconcile(), unchanged},
		"removed, suspended":          {suspended.ownedBy(ours).wrote("a"), reconcile(), tooLate},
		"removed, nonsense":           {nonsense.ownedBy(ours).wrote("a"), reconcile(), explains},
		"removed, invalid pair":       {invalid.ownedBy(ours).wrote("a"), reconcile(), explains},
		"body of an invalid pair":     {invalid.ownedBy(ours).wrote("a"), b6, tooLate},
		"removed, unknown":            {moved.unrecorded().wrote("a"), reconcile(), needsValues},
		"removed, unknown, as ours":   {moved.unrecorded().wrote("a").holding("a"), reconcile(), removes},
		"removed, unknown, edited":    {moved.unrecorded().wrote("a").holding("edit"), reconcile(), drops},
		"removed from an immutable":   {moved.ownedBy(ours).wrote("a").behind(plan.Immutable), reconcile(), keepsIt},
		"removed, never ours":         {unasked.ownedBy(theirs), reconcile(), unchanged},

		// Changes that the API server refuses.
		"immutable":                {asking().behind(plan.Immutable), b6, refused("", "Immutable", 6)},
		"immutable, known":         {absent.failing("Immutable").behind(plan.Immutable), b6, refuses},
		"immutable, same body":     {mine.wrote("a").behind(plan.Immutable), a6, unchanged},
		"immutable, from new URL":  {mine.noted(oldURL).behind(plan.Immutable), a6, keeps("a")},
		"immutable, failure":       {asking().behind(plan.Immutable), bad6, fails("", "BadStatus")},
		"too large":                {mine.wrote("a").behind(plan.TooLarge), b6, refused("a", "BodyTooLarge", 6)},
		"too large, fetched":       {absent.noted(longFetch).behind(plan.TooLarge), b6, refused("", "BodyTooLarge", 6)},
		"rejected":                 {mine.wrote("a").behind(plan.Rejected), b6, refused("a", "WriteFailed", 5)},
		"rejected, known":          {mine.noted(rejectedBefore).behind(plan.Rejected), b6, tells},
		"accepted after rejection": {mine.noted(rejectedBefore), b6, puts("b", "Recovered")},
	} {
		t.Run(name, func(t *testing.T) {
			p, need := tt.object.object().plan(plan.Planner{Prune: !tt.want.keep}, tt.item)
			check(t, p, need, tt.want)
		})
	}
}

// A failure is late if a later fetch has succeeded.
func TestConfirmed(t *testing.T) {
	g := NewWithT(t)
	object := asking().ownedBy(annotation.FieldManager).noted(wrote("a")).object()
	p, _ := object.plan(plan.Planner{}, content(7, "a"))
	g.Expect(p.Decisions[0].Confirmed).To(BeTrue())
	g.Expect(p.Empty()).To(BeTrue())
	object.Confirmed = map[string]plan.Confirmation{theKey: {Fence: fence(7), At: noon}}
	decided := func(item plan.Item) (plan.Outcome, bool) {
		p, _ := object.plan(plan.Planner{}, item)
		return p.Decisions[0].Outcome, p.Empty()
	}
	for _, item := range []plan.Item{failed(6, badStatus), content(6, "b"), unmodified(6, "a")} {
		outcome, empty := decided(item)
		g.Expect(outcome).To(Equal(plan.Late), "%v", item.Result.GetOutcome())
		g.Expect(empty).To(BeTrue(), "%v", item.Result.GetOutcome())
	}
	for late, want := range map[time.Duration]plan.Outcome{
		time.Minute: plan.Late, time.Minute + time.Second: plan.Written,
	} {
		restored := failed(6, badStatus, func(r *v1.Result) { r.ObservedAt = timestamppb.New(noon.Add(late)) })
		outcome, _ := decided(restored)
		g.Expect(outcome).To(Equal(want), "an older fence %s later, as from a restored stream", late)
	}
	outcome, _ := decided(failed(8, badStatus))
	g.Expect(outcome).To(Equal(plan.Written), "a later failure")
}

func check(t *testing.T, p plan.Plan, need plan.Need, want expectation) {
	t.Helper()
	g := NewWithT(t)
	g.Expect(need).To(Equal(plan.Need{Values: want.needs == "values", Live: want.needs == "live"}))
	if want.needs != "" {
		return
	}
	d := p.Decisions[0]
	g.Expect(d.Outcome).To(Equal(want.outcome))
	var reasons []string
	for _, e := range d.Events {
		reasons = append(reasons, e.Reason)
		g.Expect(e.Note).To(And(Not(BeEmpty()), Not(ContainSubstring("secret"))))
		g.Expect([]string{e.Action, e.Occurrence}).NotTo(ContainElement(""))
	}
	g.Expect(reasons).To(Equal(want.events))
	switch want.value {
	case "":
		g.Expect(p.Values).To(BeEmpty())
	case "-":
		g.Expect(p.Values).To(Equal(map[string]*plan.Value{theKey: nil}))
	default:
		g.Expect(p.Values).To(Equal(map[string]*plan.Value{theKey: {Body: []byte(want.value)}}))
	}
	g.Expect(p.Bytes()).To(BeNumerically(">=", len(p.Status)+len(strings.Trim(want.value, "-"))))
	g.Expect(p.Empty()).To(Equal(want.value == "" && want.entries == nil), "there is nothing to write")
	g.Expect(p.SetStatus).To(Equal(want.entries != nil), "status %s", p.Status)
	if want.entries != nil {
		g.Expect(suitetest.Sure(status.Parse(p.Status)).Keys).To(want.entries, p.Status)
	}
}

func from(url string, e status.Entry) status.Entry {
	e.URL = url
	return e
}

// copied returns the entry as copied from another object, with the fence of a stream far ahead of ours.
func copied(e status.Entry) status.Entry {
	e.Fence.Epoch = epoch + 1000
	return on("another", e)
}

func on(object string, e status.Entry) status.Entry {
	e.UIDMark = object
	return e
}

func drifted(e status.Entry, fingerprint string) status.Entry {
	e.CheckedFingerprint = fingerprint
	return e
}

func since(e status.Entry, at time.Time) status.Entry {
	e.Since = at
	return e
}

func TestAnObjectIsReadOnceForAResultToDropAndOneThatNeedsItsValues(t *testing.T) {
	object := asking().ownedBy("person").noted(copied(wrote("a"))).seen(plan.FromPatch).object()
	_, need := object.plan(plan.Planner{}, other(content(5, "b")), content(6, "b"))
	NewWithT(t).Expect(need).To(Equal(plan.Need{Values: true}))
}

func other(i plan.Item) plan.Item {
	i.Result.GetWant().Uid = "uid-2"
	return i
}

func epochs(i plan.Item, at int64) plan.Item {
	i.Result.GetWant().Epoch = at
	return plan.NewItem(i.Result)
}

func hourAgo(r *v1.Result) {
	r.GetFailure().FirstFailedAt = timestamppb.New(noon.Add(-time.Hour))
	r.Cause = v1.Cause_CAUSE_RETRY
}

func gaveUp(r *v1.Result) { r.GetFailure().GaveUp = true }

func audit(r *v1.Result) { r.Cause = v1.Cause_CAUSE_AUDIT }
