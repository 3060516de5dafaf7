package plan_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

const (
	badStatus = v1.FailureClass_FAILURE_CLASS_BAD_STATUS
	timeout   = v1.FailureClass_FAILURE_CLASS_TIMEOUT
)

// expectation is the expected plan for one item.
type expectation struct {
	verdict plan.Verdict
	// value to write to the key; "-" removes it and "" keeps it.
	value string
	// events by reason.
	events []string
	// entry checks the written entry of the key; nil means that no status is written.
	entry func(e status.Entry, exists bool) string
	// needs: "values", "live", or nothing.
	needs string
}

// well checks the entry of a key that holds body since trigger seq.
func well(body string, seq uint64, drift string) func(status.Entry, bool) string {
	return func(e status.Entry, exists bool) string {
		if !exists || e.URL != theURL || e.SHA256 != digest(body) || e.Failing() || e.Fence != fence(seq) || e.Drift != drift {
			return "not well"
		}
		return ""
	}
}

// ill checks the entry of a key that fails while it holds body, if any.
func ill(body, reason string, seq uint64) func(status.Entry, bool) string {
	return func(e status.Entry, exists bool) string {
		held := ""
		if body != "" {
			held = digest(body)
		}
		if !exists || e.SHA256 != held || e.Error != reason || e.FailingURL() != theURL || e.Fence != fence(seq) {
			return "not ill"
		}
		return ""
	}
}

func dropped(_ status.Entry, exists bool) string {
	if exists {
		return "still there"
	}
	return ""
}

func TestPlan(t *testing.T) {
	const ours, theirs = annotation.FieldManager, "person"
	foreign := "person/Update/2026-01-02T12:00:00Z"
	for name, tt := range map[string]struct {
		object fixture
		item   plan.Item
		keep   bool // --prune=false
		want   expectation
	}{
		// A body for a key that does not exist, or is ours.
		"first body":                         {asking(), content(6, "b"), false, expectation{verdict: plan.Written, value: "b", entry: well("b", 6, "")}},
		"changed body":                       {asking().ownedBy(ours).noted(wrote("a")), content(6, "b"), false, expectation{verdict: plan.Written, value: "b", entry: well("b", 6, "")}},
		"same body":                          {asking().ownedBy(ours).noted(wrote("a")), content(6, "a"), false, expectation{verdict: plan.Unchanged}},
		"same body, once drifted":            {asking().ownedBy(ours).noted(drifted(wrote("a"), "older")), content(6, "a"), false, expectation{verdict: plan.Unchanged}},
		"same body from another URL":         {asking().ownedBy(ours).noted(from("https://old.example.com", wrote("a"))), content(6, "a"), false, expectation{verdict: plan.Written, entry: well("a", 6, "")}},
		"same body after a failure":          {asking().ownedBy(ours).noted(failing(wrote("a"), "BadStatus")), content(6, "a"), false, expectation{verdict: plan.Written, entry: well("a", 6, ""), events: []string{"Recovered"}}},
		"changed body after a failure":       {asking().ownedBy(ours).noted(failing(wrote("a"), "BadStatus")), content(6, "b"), false, expectation{verdict: plan.Written, value: "b", entry: well("b", 6, ""), events: []string{"Recovered"}}},
		"first body after a failure":         {asking().noted(failing(status.Entry{}, "Timeout")), content(6, "b"), false, expectation{verdict: plan.Written, value: "b", entry: well("b", 6, ""), events: []string{"Recovered"}}},
		"body of a key that was removed":     {asking().noted(wrote("a")), content(6, "a"), false, expectation{verdict: plan.Written, value: "a", entry: well("a", 6, "")}},
		"body of a key that is ours unnoted": {asking().ownedBy(ours), content(6, "a"), false, expectation{verdict: plan.Written, value: "a", entry: well("a", 6, "")}},

		"same body, some not recorded": {asking().without(annotation.DefaultKey).annotated(annotation.LegacyKey, theKey+"="+theURL).ownedBy(ours).noted(wrote("a")), content(6, "a"), false, expectation{verdict: plan.Unchanged}},

		// A key of another owner.
		"foreign, never ours":             {asking().ownedBy(theirs), content(6, "b"), false, expectation{verdict: plan.NotOurs, entry: ill("", "KeyExists", 6), events: []string{"KeyExists"}}},
		"foreign, never ours, same body":  {asking().ownedBy(theirs).holding("b"), content(6, "b"), false, expectation{verdict: plan.NotOurs, entry: ill("", "KeyExists", 6), events: []string{"KeyExists"}}},
		"foreign, never ours, known":      {asking().ownedBy(theirs).noted(failing(status.Entry{}, "KeyExists")), content(6, "b"), false, expectation{verdict: plan.NotOurs}},
		"foreign, never ours, failure":    {asking().ownedBy(theirs), failure(6, badStatus), false, expectation{verdict: plan.NotOurs, entry: ill("", "KeyExists", 6), events: []string{"KeyExists"}}},
		"foreign, once ours, unread":      {asking().ownedBy(theirs).noted(wrote("a")), content(6, "a"), false, expectation{needs: "values"}},
		"foreign, once ours, edited":      {asking().ownedBy(theirs).noted(wrote("a")).holding("edit"), content(6, "a"), false, expectation{verdict: plan.Written, value: "a", entry: well("a", 6, "")}},
		"foreign, once ours, same as new": {asking().ownedBy(theirs).noted(wrote("a")).holding("b"), content(6, "b"), false, expectation{verdict: plan.Written, entry: well("b", 6, foreign)}},
		"foreign, once ours, as noted":    {asking().ownedBy(theirs).noted(drifted(wrote("b"), foreign)).holding("b"), content(6, "b"), false, expectation{verdict: plan.Unchanged}},
		"foreign, as noted, another body": {asking().ownedBy(theirs).noted(drifted(wrote("a"), foreign)).holding("b"), content(6, "b"), false, expectation{verdict: plan.Written, entry: well("b", 6, foreign)}},
		"foreign, edited again":           {asking().ownedBy(theirs).noted(drifted(wrote("b"), "older")).holding("b"), content(6, "b"), false, expectation{verdict: plan.Written, entry: well("b", 6, foreign)}},

		// A key without a known owner.
		"unknown, unread":              {asking().unrecorded(), content(6, "b"), false, expectation{needs: "values"}},
		"unknown, absent":              {asking().unrecorded().empty(), content(6, "b"), false, expectation{verdict: plan.Written, value: "b", entry: well("b", 6, "")}},
		"unknown, present, never ours": {asking().unrecorded().holding("b"), content(6, "b"), false, expectation{verdict: plan.NotOurs, entry: ill("", "KeyExists", 6), events: []string{"KeyExists"}}},
		"unknown, as we wrote it":      {asking().unrecorded().noted(wrote("a")).holding("a"), content(6, "b"), false, expectation{verdict: plan.Written, value: "b", entry: well("b", 6, "unknown")}},
		"unknown, same as new":         {asking().unrecorded().noted(wrote("a")).holding("b"), content(6, "b"), false, expectation{verdict: plan.Written, entry: well("b", 6, "unknown")}},
		"unknown, nothing to do":       {asking().unrecorded().noted(drifted(wrote("b"), "unknown")).holding("b"), content(6, "b"), false, expectation{verdict: plan.Unchanged}},

		// The object has another annotation.
		"other URL":     {asking().annotated(annotation.DefaultKey, theKey+"=https://other.example.com"), content(6, "b"), false, expectation{verdict: plan.Stale}},
		"other key":     {asking().annotated(annotation.DefaultKey, "other="+theURL), content(6, "b"), false, expectation{verdict: plan.Stale}},
		"nothing":       {asking().without(annotation.DefaultKey), content(6, "b"), false, expectation{verdict: plan.Stale}},
		"nonsense":      {asking().annotated(annotation.DefaultKey, "nonsense"), content(6, "b"), false, expectation{verdict: plan.Stale}},
		"nothing now":   {asking().annotated("x-kv8s.io/curl-suspend", "true"), content(6, "b"), false, expectation{verdict: plan.Stale}},
		"to be ignored": {asking().labelled("reconciler", "ignore"), content(6, "b"), false, expectation{verdict: plan.Stale}},
		"other digest":  {asking().annotated("x-kv8s.io/curl-sha256", theKey+"="+digest("x")), content(6, "b"), false, expectation{verdict: plan.Stale}},
		"this digest":   {asking().annotated("x-kv8s.io/curl-sha256", theKey+"="+digest("b")), content(6, "b"), false, expectation{verdict: plan.Written, value: "b", entry: well("b", 6, "")}},
		"failure for another URL": {
			asking().annotated(annotation.DefaultKey, theKey+"=https://other.example.com"), failure(6, badStatus), false,
			expectation{verdict: plan.Stale},
		},
		"other spelling": {asking().without(annotation.DefaultKey).annotated(annotation.LegacyKey, theKey+"="+theURL), content(6, "b"), false, expectation{needs: "values"}},

		"failure, this digest": {
			asking().annotated("x-kv8s.io/curl-sha256", theKey+"="+digest("b")), failure(6, badStatus), false,
			expectation{verdict: plan.Written, entry: ill("", "BadStatus", 6), events: []string{"BadStatus"}},
		},
		"no outcome": {asking(), result(6, func(*v1.Result) {}), false, expectation{verdict: plan.Refused}},

		// Another object.
		"other uid":      {asking(), other(content(6, "b")), false, expectation{verdict: plan.Gone}},
		"other uid, old": {asking().seen(plan.Remembered), other(content(6, "b")), false, expectation{needs: "live"}},

		// The fence.
		"older":             {asking().ownedBy(ours).noted(wrote("a")), content(4, "b"), false, expectation{verdict: plan.Stale}},
		"older, remembered": {asking().ownedBy(ours).noted(wrote("a")).seen(plan.Remembered), content(4, "b"), false, expectation{verdict: plan.Stale}},
		"again":             {asking().ownedBy(ours).noted(wrote("a")), content(5, "a"), false, expectation{verdict: plan.Unchanged}},
		"again, failure":    {asking().noted(failing(status.Entry{}, "BadStatus")), failure(5, badStatus), false, expectation{verdict: plan.Unchanged, events: []string{"BadStatus"}}},
		"again, obstacle":   {asking().noted(failing(status.Entry{}, "Immutable")), content(5, "b"), false, expectation{verdict: plan.Unchanged, events: []string{"Immutable"}}},
		"again, too large":  {asking().noted(failing(status.Entry{}, "BodyTooLarge")), content(5, "b"), false, expectation{verdict: plan.Unchanged, events: []string{"BodyTooLarge"}}},
		"again, rejected":   {asking().noted(failing(status.Entry{}, "WriteFailed")), content(5, "b"), false, expectation{verdict: plan.Unchanged, events: []string{"WriteFailed"}}},
		"again, long well":  {asking().ownedBy(ours).noted(since(wrote("a"), noon.Add(-time.Hour))), content(5, "a"), false, expectation{verdict: plan.Unchanged}},
		"again, recovery":   {asking().ownedBy(ours).noted(since(wrote("a"), noon)), content(5, "a"), false, expectation{verdict: plan.Unchanged, events: []string{"Recovered"}}},
		"again, went well":  {asking().noted(failing(status.Entry{}, "BadStatus")), content(5, "b"), false, expectation{verdict: plan.Written, value: "b", entry: well("b", 5, ""), events: []string{"Recovered"}}},
		"again, went wrong": {asking().ownedBy(ours).noted(wrote("a")), failure(5, badStatus), false, expectation{verdict: plan.Unchanged}},
		"later stream":      {asking().ownedBy(ours).noted(wrote("a")), epochs(content(1, "b"), epoch+1), false, expectation{verdict: plan.Written, value: "b", entry: anything}},
		"earlier stream":    {asking().ownedBy(ours).noted(wrote("a")), epochs(content(99, "b"), epoch-1), false, expectation{verdict: plan.Stale}},

		// A status that was copied from another object.
		"copied, unread":                  {asking().ownedBy(theirs).noted(copied(wrote("a"))), content(6, "b"), false, expectation{needs: "values"}},
		"copied, assumed":                 {asking().ownedBy(ours).noted(copied(wrote("a"))).seen(plan.Assumed), content(6, "a"), false, expectation{needs: "values"}},
		"copied with its value":           {asking().ownedBy(theirs).noted(copied(wrote("a"))).holding("a"), content(1, "b"), false, expectation{verdict: plan.Written, value: "b", entry: well("b", 1, "")}},
		"copied, same as new":             {asking().ownedBy(theirs).noted(copied(wrote("a"))).holding("a"), content(1, "a"), false, expectation{verdict: plan.Written, entry: well("a", 1, foreign)}},
		"copied with its record":          {asking().ownedBy(ours).noted(copied(wrote("a"))).holding("a"), content(1, "a"), false, expectation{verdict: plan.Written, entry: well("a", 1, "")}},
		"copied, then set by somebody":    {asking().ownedBy(theirs).noted(copied(wrote("a"))).holding("x"), content(6, "b"), false, expectation{verdict: plan.NotOurs, entry: ill("", "KeyExists", 6), events: []string{"KeyExists"}}},
		"copied without its value":        {asking().noted(copied(wrote("a"))).empty(), content(1, "a"), false, expectation{verdict: plan.Written, value: "a", entry: well("a", 1, "")}},
		"copied, failure":                 {asking().ownedBy(theirs).noted(copied(wrote("a"))).holding("a"), failure(1, badStatus), false, expectation{verdict: plan.Written, entry: ill("a", "BadStatus", 1), events: []string{"BadStatus"}}},
		"copied, set, failure":            {asking().ownedBy(theirs).noted(copied(wrote("a"))).holding("x"), failure(1, badStatus), false, expectation{verdict: plan.NotOurs, entry: ill("", "KeyExists", 1), events: []string{"KeyExists"}}},
		"copied failure, well here":       {asking().noted(copied(failing(status.Entry{}, "BadStatus"))).empty(), content(1, "b"), false, expectation{verdict: plan.Written, value: "b", entry: well("b", 1, "")}},
		"copied, pair taken out":          {asking().annotated(annotation.DefaultKey, "other="+theURL).ownedBy(theirs).noted(copied(wrote("a"))).holding("a"), reconcile(), false, expectation{verdict: plan.Written, entry: dropped}},
		"copied, set, pair taken out":     {asking().annotated(annotation.DefaultKey, "other="+theURL).unrecorded().noted(copied(wrote("a"))).holding("x"), reconcile(), false, expectation{verdict: plan.Written, entry: dropped}},
		"written here, by an older fence": {asking().ownedBy(ours).noted(on("uid-1", wrote("a"))), content(4, "b"), false, expectation{verdict: plan.Stale}},

		// Only a live object is good enough to give up a result.
		"stale, remembered":    {asking().without(annotation.DefaultKey).seen(plan.Remembered), content(6, "b"), false, expectation{needs: "live"}},
		"foreign, remembered":  {asking().ownedBy(theirs).seen(plan.Remembered), content(6, "b"), false, expectation{needs: "live"}},
		"body, remembered":     {asking().ownedBy(ours).noted(wrote("a")).seen(plan.Remembered), content(6, "b"), false, expectation{verdict: plan.Written, value: "b", entry: well("b", 6, "")}},
		"same body,remembered": {asking().ownedBy(ours).noted(wrote("a")).seen(plan.Remembered), content(6, "a"), false, expectation{verdict: plan.Unchanged}},

		// Failures.
		"first failure":         {asking(), failure(6, badStatus), false, expectation{verdict: plan.Written, entry: ill("", "BadStatus", 6), events: []string{"BadStatus"}}},
		"failure after a body":  {asking().ownedBy(ours).noted(wrote("a")), failure(6, badStatus), false, expectation{verdict: plan.Written, entry: ill("a", "BadStatus", 6), events: []string{"BadStatus"}}},
		"other failure":         {asking().noted(failing(status.Entry{}, "BadStatus")), failure(6, timeout), false, expectation{verdict: plan.Written, entry: ill("", "Timeout", 6), events: []string{"Timeout"}}},
		"same failure":          {asking().noted(failing(status.Entry{}, "BadStatus")), failure(6, badStatus, hourAgo), false, expectation{verdict: plan.Unchanged}},
		"tried, other status":   {asking().noted(tried(404)), failure(6, badStatus, hourAgo), false, expectation{verdict: plan.Unchanged}},
		"same failure, gave up": {asking().noted(failing(status.Entry{}, "BadStatus")), failure(6, badStatus, hourAgo, gaveUp), false, expectation{verdict: plan.Written, entry: ill("", "BadStatus", 6), events: []string{"BadStatus"}}},
		"same failure, again":   {asking().noted(failing(status.Entry{}, "BadStatus")), failure(6, badStatus, again), false, expectation{verdict: plan.Unchanged, events: []string{"BadStatus"}}},
		"gave up, again":        {asking().noted(given(503, false)), failure(6, badStatus, hourAgo, gaveUp, again), false, expectation{verdict: plan.Unchanged, events: []string{"BadStatus"}}},
		"gave up, other status": {asking().noted(given(404, false)), failure(6, badStatus, hourAgo, gaveUp, again), false, expectation{verdict: plan.Written, entry: ill("", "BadStatus", 6), events: []string{"BadStatus"}}},
		"longer than interval":  {asking().noted(given(503, false)), failure(6, badStatus, hourAgo, gaveUp, again, everyTenMinutes), false, expectation{verdict: plan.Written, entry: ill("", "BadStatus", 6), events: []string{"BadStatus"}}},
		"longer, known":         {asking().noted(given(503, true)), failure(6, badStatus, hourAgo, gaveUp, everyTenMinutes), false, expectation{verdict: plan.Unchanged}},
		"tries of an old state": {asking().noted(given(503, true)), failure(6, badStatus, hourAgo, everyTenMinutes), false, expectation{verdict: plan.Written, entry: ill("", "BadStatus", 6), events: []string{"BadStatus"}}},
		"same failure, new row": {asking().noted(failing(status.Entry{}, "BadStatus")), failure(6, badStatus), false, expectation{verdict: plan.Written, entry: ill("", "BadStatus", 6)}},
		"same failure, audit":   {asking().noted(failing(status.Entry{}, "BadStatus")), failure(6, badStatus, audit), false, expectation{verdict: plan.Unchanged}},
		"failure of a new URL":  {asking().ownedBy(ours).noted(failing(from("https://old.example.com", wrote("a")), "BadStatus")), failure(6, timeout), false, expectation{verdict: plan.Written, entry: ill("a", "Timeout", 6), events: []string{"Timeout"}}},
		"unknown class":         {asking(), failure(6, 99), false, expectation{verdict: plan.Written, entry: ill("", "Unknown", 6), events: []string{"Unknown"}}},

		"failure, unknown, unread":  {asking().unrecorded(), failure(6, badStatus), false, expectation{needs: "values"}},
		"failure, unknown, absent":  {asking().unrecorded().empty(), failure(6, badStatus), false, expectation{verdict: plan.Written, entry: ill("", "BadStatus", 6), events: []string{"BadStatus"}}},
		"failure, unknown, present": {asking().unrecorded().holding("x"), failure(6, badStatus), false, expectation{verdict: plan.NotOurs, entry: ill("", "KeyExists", 6), events: []string{"KeyExists"}}},

		// Recovery without a body.
		"unmodified":              {asking().ownedBy(ours).noted(failing(wrote("a"), "Timeout")), unmodified(6, "a"), false, expectation{verdict: plan.Written, entry: well("a", 6, ""), events: []string{"Recovered"}}},
		"unmodified, was well":    {asking().ownedBy(ours).noted(wrote("a")), unmodified(6, "a"), false, expectation{verdict: plan.Unchanged}},
		"unmodified, other body":  {asking().ownedBy(ours).noted(failing(wrote("b"), "Timeout")), unmodified(6, "a"), false, expectation{verdict: plan.Stale}},
		"unmodified, never ours":  {asking().ownedBy(theirs), unmodified(6, "a"), false, expectation{verdict: plan.Stale}},
		"unmodified, not asked":   {asking().without(annotation.DefaultKey).noted(failing(wrote("a"), "Timeout")), unmodified(6, "a"), false, expectation{verdict: plan.Stale}},
		"unmodified, another URL": {asking().ownedBy(ours).noted(from("https://old.example.com", wrote("a"))), unmodified(6, "a"), false, expectation{verdict: plan.Written, entry: well("a", 6, "")}},

		// Removed pairs.
		"removed, ours":                  {asking().without(annotation.DefaultKey).ownedBy(ours).noted(wrote("a")), reconcile(), false, expectation{verdict: plan.Written, value: "-", entry: dropped}},
		"removed, ours, kept":            {asking().without(annotation.DefaultKey).ownedBy(ours).noted(wrote("a")), reconcile(), true, expectation{verdict: plan.Written, entry: dropped}},
		"removed, ours, unnoted":         {asking().without(annotation.DefaultKey).ownedBy(ours), reconcile(), false, expectation{verdict: plan.Unchanged}},
		"removed, nobody knows, unnoted": {asking().annotated(annotation.DefaultKey, "other="+theURL).unrecorded(), reconcile(), false, expectation{verdict: plan.Unchanged}},
		"removed, shared":                {asking().without(annotation.DefaultKey).ownedBy(ours, theirs).noted(wrote("a")), reconcile(), false, expectation{verdict: plan.Written, entry: dropped, events: []string{"KeyExists"}}},
		"removed, applied":               {asking().without(annotation.DefaultKey).appliedBefore(`{"data":{"mydata":"x"}}`).ownedBy(ours).noted(wrote("a")), reconcile(), false, expectation{verdict: plan.Written, entry: dropped, events: []string{"KeyExists"}}},
		"removed, applied binary":        {asking().without(annotation.DefaultKey).appliedBefore(`{"binaryData":{"mydata":"eA=="}}`).ownedBy(ours).noted(wrote("a")), reconcile(), false, expectation{verdict: plan.Written, entry: dropped, events: []string{"KeyExists"}}},
		"removed, other applied":         {asking().without(annotation.DefaultKey).appliedBefore(`{"data":{"other":"x"}}`).ownedBy(ours).noted(wrote("a")), reconcile(), false, expectation{verdict: plan.Written, value: "-", entry: dropped}},
		"removed, unreadable":            {asking().without(annotation.DefaultKey).appliedBefore(`{"data":{"mydata":`).ownedBy(ours).noted(wrote("a")), reconcile(), false, expectation{verdict: plan.Written, value: "-", entry: dropped}},
		"removed, taken over":            {asking().annotated(annotation.DefaultKey, "other="+theURL).ownedBy(theirs).noted(wrote("a")), reconcile(), false, expectation{verdict: plan.Written, entry: dropped}},
		"removed, already gone":          {asking().annotated(annotation.DefaultKey, "other="+theURL).noted(wrote("a")), reconcile(), false, expectation{verdict: plan.Written, entry: dropped}},
		"removed, only failed":           {asking().annotated(annotation.DefaultKey, "other="+theURL).noted(failing(status.Entry{}, "Timeout")), reconcile(), false, expectation{verdict: plan.Written, entry: dropped}},
		"removed, nothing left":          {asking().annotated(annotation.DefaultKey, "other="+theURL), reconcile(), false, expectation{verdict: plan.Unchanged}},
		"removed, asked for":             {asking().ownedBy(ours).noted(wrote("a")), reconcile(), false, expectation{verdict: plan.Unchanged}},
		"removed, suspended":             {asking().without(annotation.DefaultKey).annotated(annotation.DefaultKey, "other="+theURL).annotated("x-kv8s.io/curl-suspend", "1").ownedBy(ours).noted(wrote("a")), reconcile(), false, expectation{verdict: plan.Stale}},
		"removed, nonsense":              {asking().annotated(annotation.DefaultKey, "nonsense").ownedBy(ours).noted(wrote("a")), reconcile(), false, expectation{verdict: plan.Written, entry: anything}},
		"removed, back but refused":      {asking().annotated(annotation.DefaultKey, theKey+"=ftp://data.example.com").ownedBy(ours).noted(wrote("a")), reconcile(), false, expectation{verdict: plan.Written, entry: anything}},
		"body of a refused pair":         {asking().annotated(annotation.DefaultKey, theKey+"=ftp://data.example.com").ownedBy(ours).noted(wrote("a")), content(6, "b"), false, expectation{verdict: plan.Stale}},
		"removed, unknown":               {asking().annotated(annotation.DefaultKey, "other="+theURL).unrecorded().noted(wrote("a")), reconcile(), false, expectation{needs: "values"}},
		"removed, unknown, as ours":      {asking().annotated(annotation.DefaultKey, "other="+theURL).unrecorded().noted(wrote("a")).holding("a"), reconcile(), false, expectation{verdict: plan.Written, value: "-", entry: dropped}},
		"removed, unknown, edited":       {asking().annotated(annotation.DefaultKey, "other="+theURL).unrecorded().noted(wrote("a")).holding("edit"), reconcile(), false, expectation{verdict: plan.Written, entry: dropped}},
		"removed from an immutable":      {asking().annotated(annotation.DefaultKey, "other="+theURL).ownedBy(ours).noted(wrote("a")).behind(plan.Immutable), reconcile(), false, expectation{verdict: plan.Written, entry: dropped, events: []string{"KeyExists"}}},
		"removed from one unrelated":     {asking().without(annotation.DefaultKey).ownedBy(theirs), reconcile(), false, expectation{verdict: plan.Unchanged}},

		// Changes that the API server refuses.
		"immutable":                {asking().behind(plan.Immutable), content(6, "b"), false, expectation{verdict: plan.Refused, entry: ill("", "Immutable", 6), events: []string{"Immutable"}}},
		"immutable, known":         {asking().noted(failing(status.Entry{}, "Immutable")).behind(plan.Immutable), content(6, "b"), false, expectation{verdict: plan.Refused}},
		"immutable, same body":     {asking().ownedBy(ours).noted(wrote("a")).behind(plan.Immutable), content(6, "a"), false, expectation{verdict: plan.Unchanged}},
		"immutable, from new URL":  {asking().ownedBy(ours).noted(from("https://old.example.com", wrote("a"))).behind(plan.Immutable), content(6, "a"), false, expectation{verdict: plan.Written, entry: well("a", 6, "")}},
		"immutable, failure":       {asking().behind(plan.Immutable), failure(6, badStatus), false, expectation{verdict: plan.Written, entry: ill("", "BadStatus", 6), events: []string{"BadStatus"}}},
		"too large":                {asking().ownedBy(ours).noted(wrote("a")).behind(plan.TooLarge), content(6, "b"), false, expectation{verdict: plan.Refused, entry: ill("a", "BodyTooLarge", 6), events: []string{"BodyTooLarge"}}},
		"rejected":                 {asking().ownedBy(ours).noted(wrote("a")).behind(plan.Rejected), content(6, "b"), false, expectation{verdict: plan.Refused, entry: ill("a", "WriteFailed", 5), events: []string{"WriteFailed"}}},
		"rejected, known":          {asking().ownedBy(ours).noted(failing(wrote("a"), "WriteFailed")).behind(plan.Rejected), content(6, "b"), false, expectation{verdict: plan.Refused, events: []string{"WriteFailed"}}},
		"accepted after rejection": {asking().ownedBy(ours).noted(failing(wrote("a"), "WriteFailed")), content(6, "b"), false, expectation{verdict: plan.Written, value: "b", entry: well("b", 6, ""), events: []string{"Recovered"}}},
	} {
		t.Run(name, func(t *testing.T) {
			p := plan.Planner{Prune: !tt.keep}.Plan(tt.object.object(t), []plan.Item{tt.item})
			check(t, p, tt.want)
		})
	}
}

// A failure is stale if a later fetch has succeeded.
func TestConfirmed(t *testing.T) {
	object := asking().ownedBy(annotation.FieldManager).noted(wrote("a")).object(t)
	p := plan.Planner{}.Plan(object, []plan.Item{content(7, "a")})
	if !p.Decisions[0].Confirmed || !p.Empty() {
		t.Errorf("plan %+v", p)
	}
	object.Confirmed = map[string]plan.Confirmation{theKey: {Fence: fence(7), At: noon}}
	for _, item := range []plan.Item{failure(6, badStatus), content(6, "b"), unmodified(6, "a")} {
		if p := (plan.Planner{}).Plan(object, []plan.Item{item}); p.Decisions[0].Verdict != plan.Stale || !p.Empty() {
			t.Errorf("%v: %+v", item.Result.GetOutcome(), p)
		}
	}
	for late, verdict := range map[time.Duration]plan.Verdict{time.Minute: plan.Stale, time.Minute + time.Second: plan.Written} {
		restored := failure(6, badStatus, func(r *v1.Result) { r.ObservedAt = timestamppb.New(noon.Add(late)) })
		if p := (plan.Planner{}).Plan(object, []plan.Item{restored}); p.Decisions[0].Verdict != verdict {
			t.Errorf("an older fence %s later, as of a stream that was restored: %+v", late, p)
		}
	}
	if p := (plan.Planner{}).Plan(object, []plan.Item{failure(8, badStatus)}); p.Decisions[0].Verdict != plan.Written {
		t.Errorf("a later failure: %+v", p)
	}
}

func check(t *testing.T, p plan.Plan, want expectation) {
	t.Helper()
	if want.needs != "" {
		if p.NeedValues != (want.needs == "values") || p.NeedLive != (want.needs == "live") {
			t.Fatalf("needs values %v, live %v; want %s", p.NeedValues, p.NeedLive, want.needs)
		}
		return
	}
	if p.NeedValues || p.NeedLive {
		t.Fatalf("needs values %v, live %v", p.NeedValues, p.NeedLive)
	}
	d := p.Decisions[0]
	if d.Verdict != want.verdict {
		t.Errorf("verdict %v; want %v", d.Verdict, want.verdict)
	}
	var reasons []string
	for _, e := range d.Events {
		reasons = append(reasons, e.Reason)
		if e.Note == "" || strings.Contains(e.Note, "secret") || e.Action == "" || e.Occurrence == "" {
			t.Errorf("event %+v", e)
		}
	}
	if !slices.Equal(reasons, want.events) {
		t.Errorf("events %v; want %v", reasons, want.events)
	}
	value, planned := p.Values[theKey]
	switch {
	case want.value == "" && planned, want.value != "" && !planned:
		t.Errorf("value planned: %v", planned)
	case want.value == "-" && value != nil, want.value != "-" && planned && (value == nil || string(value.Body) != want.value):
		t.Errorf("value %v", value)
	}
	if len(p.Values) > 1 {
		t.Errorf("other keys are touched: %v", p.Values)
	}
	if p.Bytes() < int64(len(p.Status)+len(strings.Trim(want.value, "-"))) {
		t.Errorf("%d bytes", p.Bytes())
	}
	if p.Empty() != (want.value == "" && want.entry == nil) {
		t.Errorf("there is nothing to write: %t", p.Empty())
	}
	if p.SetStatus != (want.entry != nil) {
		t.Fatalf("status is set: %v, %s", p.SetStatus, p.Status)
	}
	if want.entry != nil {
		s, err := status.Parse(p.Status)
		if err != nil {
			t.Fatal(err)
		}
		entry, exists := s.Keys[theKey]
		if wrong := want.entry(entry, exists); wrong != "" {
			t.Errorf("entry is %s: %s", wrong, p.Status)
		}
	}
}

func from(url string, e status.Entry) status.Entry {
	e.URL = url
	return e
}

// copied returns an entry with the fence of a stream far ahead of ours.
func copied(e status.Entry) status.Entry {
	e.Fence.Epoch = epoch + 1000
	return on("another", e)
}

func on(object string, e status.Entry) status.Entry {
	e.Object = object
	return e
}

func drifted(e status.Entry, fingerprint string) status.Entry {
	e.Drift = fingerprint
	return e
}

func since(e status.Entry, at time.Time) status.Entry {
	e.Since = at
	return e
}

func anything(status.Entry, bool) string { return "" }

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
