package console

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/console/access"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/console/model"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/deadletter"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/natsconn"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/readable"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/replay"
	"github.com/kv8s/curl-me-that/proto/condition"
	"github.com/kv8s/curl-me-that/proto/pipeline/operate"
)

// How many rows a page has, and how much JSON and facets have.
const (
	pageRows   = 50
	jsonRows   = 1000
	facetHosts = 12
)

// filterFields are the fields of a filter in the address, which are the flags of
// curlctl.
func filterFields() []string {
	return []string{"reason", "host", "namespace", "name", "key", "since", "until"}
}

// filter is what selects failures, as it stands in the address.
type filter struct {
	deadletter.Selection

	// Values are the fields that are set, the cursor left out.
	Values url.Values
	// Dead is what they select.
	Dead operate.DeadLetterFilter
}

// readFilter reads the address or form. A person who may see one namespace
// selects from that one.
func (v *visit) readFilter() (filter, error) {
	f := filter{Values: url.Values{}}
	for _, field := range filterFields() {
		if value := strings.TrimSpace(v.FormValue(field)); value != "" {
			f.Values.Set(field, value)
		}
	}
	if v.namespace != "" {
		f.Values.Set("namespace", v.namespace)
	}
	get := f.Values.Get
	f.Selection = deadletter.Selection{
		Reason: get("reason"), Host: get("host"), Namespace: get("namespace"), Name: get("name"), Key: get("key"),
		Since: get("since"), Until: get("until"),
	}
	var err error
	if f.Dead, err = f.Filter(v.server.deps.Now()); err != nil {
		return f, badRequest(err)
	}
	if below := v.FormValue("below"); below != "" {
		if f.Dead.Below, err = strconv.ParseUint(below, 10, 64); err != nil || f.Dead.Below == 0 {
			return f, badRequest(errors.New("below: " + strconv.Quote(below) + " is not the ID of a failure"))
		}
	}
	return f, nil
}

// Exact reports whether counts by reason and host hold for the filter.
func (f filter) Exact() bool {
	dead := f.Dead
	dead.Below = 0
	return dead.Exact()
}

// With returns the address of the list with one field changed; the cursor is left
// out.
func (f filter) With(field, value string) string {
	values := maps.Clone(f.Values)
	if value == "" {
		values.Del(field)
	} else {
		values.Set(field, value)
	}
	return "/failures?" + values.Encode()
}

// At returns the address of another page for the same filter.
func (f filter) At(path string) string { return path + "?" + f.Values.Encode() }

// Words are the flags of curlctl for the filter.
func (f filter) Words() []string {
	var words []string
	for _, field := range filterFields() {
		if value := f.Values.Get(field); value != "" {
			words = append(words, "--"+field+"="+value)
		}
	}
	return words
}

// match reports whether a failure that passes is one of the filter, as far as its
// subject has that.
func (f filter) match(x model.Failure) bool {
	s := f.Selection
	return (s.Reason == "" || s.Reason == x.Reason) && (s.Host == "" || strings.EqualFold(s.Host, x.Host)) &&
		(s.Namespace == "" || s.Namespace == x.Key.Namespace) && (s.Name == "" || s.Name == x.Key.Name) &&
		(s.Key == "" || s.Key == x.Key.Key) && s.Until == ""
}

// facet is one value of a field and how many failures have it.
type facet struct {
	Value string
	Count uint64
	On    bool
}

type failuresData struct {
	Filter     filter
	Rows       []deadletter.Record
	Older      string
	Below      uint64
	Reasons    []facet
	Hosts      []facet
	MoreHosts  int
	Namespaces []string
	AllReasons []string
	// Match is how many match where Counted: the counts have no times and names.
	Match         int
	Counted       bool
	Command       string
	Replay, Purge bool
}

func (s *Server) failuresPage(v *visit) (*page, error) {
	f, err := v.readFilter()
	if err != nil {
		return nil, err
	}
	s.lookShortly(v)
	if err := s.model.Missing(model.Failures); errors.As(err, new(*natsconn.PermissionError)) {
		return nil, err // to what is refused there is no response
	}
	data := failuresData{
		Filter: f, Below: f.Dead.Below, AllReasons: deadletter.Reasons(), Namespaces: s.model.Namespaces(),
		Command: command(append([]string{"curlctl", "failures"}, f.Words()...)...), Replay: v.can(access.Replay), Purge: v.can(access.Purge),
	}
	failed := s.model.Failed()
	for d, err := range readable.Only(&v.unread, s.deps.Conn.Client.DeadLetters(v.Context(), f.Dead)) {
		if err != nil {
			return nil, err
		}
		if len(data.Rows) == pageRows {
			data.Older = strconv.FormatUint(data.Rows[pageRows-1].ID, 10)
			break
		}
		data.Rows = append(data.Rows, s.failureRow(d))
	}
	if v.namespace != "" {
		data.Namespaces = nil
	} else if !s.model.Brief().AsOf.IsZero() {
		data.count(s.model.Failures())
	}
	live := maps.Clone(f.Values)
	live.Set("failed", strconv.FormatUint(failed, 10))
	return &page{template: "failures.html", title: "Failures", data: data, live: live}, nil
}

// lookShort bounds how long a page that does without the model waits for it.
const lookShort = time.Second

func (s *Server) lookShortly(v *visit) {
	ctx, cancel := context.WithTimeout(v.Context(), lookShort)
	defer cancel()
	s.model.Look(ctx)
}

// count fills the facets, and how many match where the server's counts have
// that: each field is counted within the others.
func (d *failuresData) count(counts map[operate.ReasonHost]uint64) {
	reasons, hosts, match := map[string]uint64{}, map[string]uint64{}, uint64(0)
	s := d.Filter.Selection
	host := strings.ToLower(s.Host)
	for rh, n := range counts {
		ofReason, ofHost := s.Reason == "" || s.Reason == rh.Reason, host == "" || host == rh.Host
		if ofHost {
			reasons[rh.Reason] += n
		}
		if ofReason {
			hosts[rh.Host] += n
		}
		if ofReason && ofHost {
			match += n
		}
	}
	d.Reasons, d.Hosts = facets(reasons, s.Reason), facets(hosts, host)
	if d.MoreHosts = len(d.Hosts) - facetHosts; d.MoreHosts > 0 {
		d.Hosts = d.Hosts[:facetHosts]
	}
	if s.Namespace+s.Name+s.Key+s.Since+s.Until == "" && d.Filter.Exact() {
		d.Match, d.Counted = int(match), true
	}
}

func facets(counts map[string]uint64, chosen string) []facet {
	var all []facet
	for value, n := range counts {
		all = append(all, facet{value, n, value == chosen})
	}
	slices.SortFunc(all, func(a, b facet) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Value, b.Value)) })
	return all
}

// The conditions of the key of a failure that is kept.
const (
	nowRecovered = "recovered"
	nowFailing   = "failing"
	nowWaiting   = "waiting"
	nowChanged   = "changed"
	nowGone      = "gone"
)

// failureRow returns a failure, and derives from the model what has become of its key.
func (s *Server) failureRow(d operate.DeadLetter) deadletter.Record {
	row := deadletter.NewRecord(d)
	if s.model.Brief().AsOf.IsZero() {
		return row
	}
	known, wanted := s.model.Row(d.Key)
	switch want := d.Message.GetWant(); {
	case !wanted:
		row.Now = nowGone
	case want.GetUid() != known.UID || want.GetUrl() != known.URL:
		row.Now = nowChanged
	case known.Condition.State == condition.Failing:
		row.Now = nowFailing
	case known.Condition.State == condition.Waiting || known.Condition.Attempts > 0:
		row.Now = nowWaiting
	default:
		row.Now = nowRecovered
	}
	return row
}

// failuresJSON writes the newest failures of a filter as curlctl does.
func (s *Server) failuresJSON(v *visit) (*page, error) {
	f, err := v.readFilter()
	if err != nil {
		return nil, err
	}
	items := []deadletter.Record{}
	for d, err := range readable.Only(&v.unread, s.deps.Conn.Client.DeadLetters(v.Context(), f.Dead)) {
		if err != nil {
			return nil, err
		}
		if len(items) == jsonRows {
			break
		}
		items = append(items, deadletter.NewRecord(d))
	}
	v.w.Header().Set("Content-Type", "application/json")
	return &page{done: true}, json.NewEncoder(v.w).Encode(map[string]any{"items": items})
}

// failure reads the failure whose id is a text.
func (v *visit) failure(text string) (operate.DeadLetter, error) {
	id, err := strconv.ParseUint(text, 10, 64)
	if err != nil || id == 0 {
		return operate.DeadLetter{}, notFound("%q is not the ID of a failure.", text)
	}
	return failureIn(v.Context(), v.server.deps.Conn.Client, id, v.namespace)
}

// failureIn reads a failure of a namespace; empty: of any. That of another is not
// found, as if it were none.
func failureIn(ctx context.Context, client *operate.Client, id uint64, namespace string) (operate.DeadLetter, error) {
	d, err := client.DeadLetter(ctx, id)
	if deadLetterGone(err) || err == nil && namespace != "" && d.Key.Namespace != namespace {
		return operate.DeadLetter{}, notFound("Failure %d never was one, or has been removed.", id)
	}
	return d, err
}

type failureData struct {
	deadletter.Record

	Sentence string
	Verdict  string
	Wanted   bool
	Snippet  string
	TraceURL string
	Earlier  []deadletter.Record
	Command  string
	Replay   bool
}

// snippetMost is how much of an answer is shown, in bytes, and earlierMost how
// many earlier failures.
const (
	snippetMost = 1 << 10
	earlierMost = 10
)

func (s *Server) failurePage(v *visit) (*page, error) {
	d, err := v.failure(v.PathValue("id"))
	if err != nil {
		return nil, err
	}
	s.lookShortly(v)
	verdict, err := replay.Check(v.Context(), s.deps.Conn.Client, d)
	if err != nil {
		return nil, err
	}
	data := failureData{
		Record: s.failureRow(d), Verdict: string(verdict), Wanted: verdict == replay.Wanted,
		Command: command("curlctl", "failures", "show", strconv.FormatUint(d.ID, 10)), Replay: v.can(access.Replay),
	}
	if f := d.Message.GetFailure(); f != nil {
		data.Sentence = condition.Sentence(d.Message.GetWant().GetUrl(), f)
	}
	snippet := d.Message.GetSnippet()
	data.Snippet = strings.ToValidUTF8(string(snippet[:min(len(snippet), snippetMost)]), "\uFFFD")
	if data.TraceID != "" && s.config.TraceURL != "" {
		data.TraceURL = strings.ReplaceAll(s.config.TraceURL, "{trace}", data.TraceID)
	}
	earlier := operate.DeadLetterFilter{Namespace: d.Key.Namespace, Name: d.Key.Name, Key: d.Key.Key, Below: d.ID}
	for e, err := range readable.Only(&v.unread, s.deps.Conn.Client.DeadLetters(v.Context(), earlier)) {
		if err != nil {
			return nil, err
		}
		if len(data.Earlier) == earlierMost {
			break
		}
		data.Earlier = append(data.Earlier, s.failureRow(e))
	}
	return &page{template: "failure.html", title: "Failure " + strconv.FormatUint(d.ID, 10), data: data}, nil
}

// command writes a command line that a shell reads as it stands.
func command(words ...string) string {
	for i, word := range words {
		if word == "" || strings.ContainsFunc(word, func(r rune) bool {
			return !strings.ContainsRune("-_=./:,@%+", r) && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
		}) {
			words[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}
