package engine_test

import (
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/natstest"
	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// file is a file of a randomOrigin with its history.
type file struct {
	versions []version
	manner   manner
}

func (f *file) current() *version { return &f.versions[len(f.versions)-1] }

// respond responds like a server with the manner of the file.
func (f *file) respond(rw http.ResponseWriter, r *http.Request) {
	m, current, headers := f.manner, f.current(), rw.Header()
	match, date := r.Header.Get("If-None-Match"), r.Header.Get("If-Modified-Since")
	headers["Date"] = nil
	switch conditional := match+date != ""; {
	case conditional && m.conditions == refusing:
		rw.WriteHeader(m.refusal)
		return
	case conditional && m.conditions == lying:
		rw.WriteHeader(http.StatusNotModified)
		return
	}
	if !m.dateless {
		headers.Set("Date", w.clock.Now().UTC().Format(http.TimeFormat))
	}
	tag := ""
	if m.tag {
		sum := pipeline.Digest(current.content)[:8]
		tag = map[int]string{
			strong: `"` + sum + `"`, weak: `W/"` + sum + `"`, malformedTag: sum, doubled: `"` + sum + `"`,
			coarse: fmt.Sprintf(`"%x-%x"`, current.modified.Unix(), len(current.content)),
		}[m.tagKind]
		if headers.Set("ETag", tag); m.tagKind == doubled {
			headers.Add("ETag", `"always"`)
		}
	}
	if m.date {
		headers.Set("Last-Modified", current.modified.UTC().Format(http.TimeFormat))
	}
	since, err := http.ParseTime(date)
	unmodified := err == nil && m.date && !current.modified.After(since)
	switch {
	case m.conditions == byDate && unmodified, m.conditions == honest && match == "" && unmodified,
		m.conditions == honest && match != "" && match == tag:
		rw.WriteHeader(http.StatusNotModified)
		return
	}
	if m.chunked {
		_ = http.NewResponseController(rw).Flush()
	}
	_, _ = io.WriteString(rw, current.content)
}

type version struct {
	content  string
	modified time.Time
	// until is when the next version replaced this one.
	until time.Time
}

// manner is how the server of a file treats validators.
type manner struct {
	tag, date, dateless bool
	tagKind             int
	conditions, refusal int
	chunked             bool
}

// Ways to evaluate a condition.
const (
	honest   = iota
	byDate   // the ETag in the request is ignored
	refusing // with a status
	lying    // always 304
	mannersOfConditions
)

const (
	strong = iota
	weak
	coarse // of second and size
	malformedTag
	doubled
	kindsOfTags
)

// randomOrigin serves /KEY, which redirects to /KEY/a or /KEY/b, or is one of them.
type randomOrigin struct {
	*origin

	mu     sync.Mutex
	random *rand.Rand
	files  map[string]*file
	// target is the final path of each key, if it redirects.
	target map[string]string
	// ill are the keys whose next GETs fail, delayed or cut.
	ill map[string]int
}

func newRandomOrigin(seed uint64, keys int) *randomOrigin {
	o := &randomOrigin{
		random: rand.New(rand.NewPCG(seed, 1)),
		files:  map[string]*file{}, target: map[string]string{}, ill: map[string]int{},
	}
	for i := range keys {
		for _, name := range []string{"", "/a", "/b"} {
			path := fmt.Sprintf("/%d%s", i, name)
			o.files[path] = new(file)
			o.write(path, w.clock.Now().Add(-time.Duration(o.random.IntN(1000))*time.Hour))
			o.behave(path)
		}
	}
	o.origin = serve(o.respond)
	return o
}

// write replaces a file by a new version, sometimes by one of the same size.
func (o *randomOrigin) write(path string, modified time.Time) {
	f := o.files[path]
	if n := len(f.versions); n > 0 {
		f.versions[n-1].until = w.clock.Now()
	}
	content := fmt.Sprintf("%s: %d", path, o.random.Uint32()%1000) + strings.Repeat(".", o.random.IntN(3))
	f.versions = append(f.versions, version{content: content, modified: modified.Truncate(time.Second)})
}

// behave gives a file another manner.
func (o *randomOrigin) behave(path string) {
	r := o.random
	o.files[path].manner = manner{
		tag: r.IntN(3) > 0, date: r.IntN(3) > 0, dateless: r.IntN(8) == 0, tagKind: r.IntN(kindsOfTags),
		conditions: r.IntN(mannersOfConditions), refusal: []int{400, 403, 404, 412, 500, 502, 503}[r.IntN(7)],
		chunked: r.IntN(3) == 0,
	}
}

// change changes the files, targets, manners and faults at random between two refreshes.
func (o *randomOrigin) change(keys int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.ill)
	for i := range keys {
		path := fmt.Sprintf("/%d", i)
		for _, name := range []string{"", "/a", "/b"} {
			switch o.random.IntN(10) {
			case 0: // now, perhaps twice within a second
				o.write(path+name, w.clock.Now())
			case 1: // restored from a backup
				o.write(path+name, w.clock.Now().Add(-time.Duration(1+o.random.IntN(1000))*time.Hour))
			case 2:
				if o.random.IntN(5) == 0 {
					o.behave(path + name)
				}
			}
		}
		switch o.random.IntN(15) {
		case 0:
			o.target[path] = path + "/a"
		case 1:
			o.target[path] = path + "/b"
		case 2:
			delete(o.target, path)
		case 3:
			o.ill[path] = o.random.IntN(faults)
		}
	}
}

// faults is the number of faults of a GET.
const faults = 5

func (o *randomOrigin) respond(rw http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	root := "/" + strings.Split(r.URL.Path, "/")[1]
	if target := o.target[root]; target != "" && r.URL.Path == root {
		http.Redirect(rw, r, target, http.StatusFound)
		return
	}
	fault, ill := o.ill[root]
	switch {
	case ill && fault == 0:
		fails(http.StatusInternalServerError)(rw, r)
		return
	case ill && fault == 1:
		retryLater(http.StatusAccepted, "5")(rw, r)
		return
	case ill && fault == 2:
		fails(http.StatusNotFound)(rw, r)
		return
	case ill && fault == 3:
		<-time.After(3 * time.Millisecond)
	}
	o.files[r.URL.Path].respond(rw, r)
	if ill && fault == 4 {
		_ = http.NewResponseController(rw).Flush()
		panic(http.ErrAbortHandler) // before the last chunk
	}
}

// wrong explains why a digest is not that of a body that the final URL of a key has served since a
// time; empty means that it is.
func (o *randomOrigin) wrong(key int, sum string, since time.Time) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	path := fmt.Sprintf("/%d", key)
	final := cmp.Or(o.target[path], path)
	for _, v := range o.files[final].versions {
		if pipeline.Digest(v.content) == sum && (v.until.IsZero() || v.until.After(since)) {
			return ""
		}
	}
	for path, f := range o.files {
		for _, v := range f.versions {
			if pipeline.Digest(v.content) == sum {
				return fmt.Sprintf("%s holds %q of %s until %s (%+v)", final, v.content, path, v.until, o.files[final].manner)
			}
		}
	}
	return final + " holds a body that nobody sent"
}

// honestly reports whether the responses of the server of a key allow it to hold the newest version:
// any other body is then wrong.
func (o *randomOrigin) honestly(key int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	path := fmt.Sprintf("/%d", key)
	m := o.files[cmp.Or(o.target[path], path)].manner
	switch {
	case m.conditions == lying:
		return false
	case m.conditions == refusing, m.tag && m.tagKind < coarse:
		return true
	}
	return m.conditions == honest && m.tag && m.tagKind == coarse && m.date && !m.dateless
}

var _ = It("Keys of a random server hold a body that their URL served within a day, or are reported as failing",
	func() {
		number := func(name, usual string) uint64 {
			return suitetest.Must(strconv.ParseUint(cmp.Or(os.Getenv(name), usual), 10, 64))
		}
		const keys, refreshes = 50, 40
		for round := range number("ROUNDS", "1") {
			seed := number("SEED", "1") + round
			AddReportEntry("random", ReportEntryVisibilityFailureOrVerbose, fmt.Sprintf("SEED=%d", seed))
			w = newWorld(natstest.Options{}, pipeline.Topology{})
			f := w.fetcher(func(o *fetcherOptions) { o.limits.Slots, o.limits.PerHost, o.limits.Share = 2*keys, 2*keys, 1 })
			o := newRandomOrigin(seed, keys)
			stop := f.run()
			var all []pipeline.Key
			for i := range keys {
				want := w.want(fmt.Sprintf("%s/%d", o.URL, i), named("cm", i), every(time.Hour))
				w.publish(want)
				all = append(all, pipeline.KeyOf(want))
			}
			held := map[pipeline.Key]string{}
			for refresh := range refreshes + 1 {
				if refresh > 0 {
					o.change(keys) // perhaps within the second of the last GET
					w.refresh(all, func() { o.change(keys) })
				}
				Eventually(func(g Gomega) {
					g.Expect(w.pending()).To(BeZero())
					for _, r := range w.takeResults() {
						if r.GetContent() != nil {
							held[pipeline.KeyOf(r.GetWant())] = pipeline.Digest(string(r.GetContent().GetBody()))
						}
					}
					for i, k := range all {
						t := w.timerOf(k)
						g.Expect(t).NotTo(BeNil(), "timer")
						if t.GetFirstFailedAt() != nil {
							g.Expect(t.GetAttempts() > 0 || t.GetGaveUp()).To(BeTrue())
							continue
						}
						since := w.clock.Now().Add(-24 * time.Hour)
						if o.honestly(i) {
							since = w.clock.Now()
						}
						g.Expect(o.wrong(i, held[k], since)).To(BeEmpty(), "SEED=%d, refresh %d of %s", seed, refresh, k)
					}
				}).WithTimeout(20 * time.Second).WithPolling(5 * time.Millisecond).Should(Succeed())
			}
			stop()
		}
	})

// refresh advances the clock to the last timer of the keys, calls change, and fires all.
func (w *world) refresh(all []pipeline.Key, change func()) {
	GinkgoHelper()
	var dues []*v1.Due
	var last time.Time
	for _, k := range all {
		t := w.timerOf(k)
		Expect(t).NotTo(BeNil())
		dues = append(dues, t.Due)
		if t.at.After(last) && t.GetFirstFailedAt() == nil {
			last = t.at
		}
	}
	w.clock.Advance(max(0, last.Sub(w.clock.Now())))
	change()
	for _, due := range dues {
		w.fire(due)
	}
}

// takeResults removes and returns the published results.
func (w *world) takeResults() []*v1.Result {
	GinkgoHelper()
	results := w.results()
	Expect(suitetest.Must(w.js.Stream(w.ctx, pipeline.Results)).Purge(w.ctx)).To(Succeed())
	return results
}
