package engine_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
	"github.com/kv8s/curl-me-that/fetcher/internal/engine"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/signature"
)

var _ = Describe("Credentials", func() {
	const secret = "Bearer of the namespace"
	var (
		f      *fetcher
		o      *origin
		signer *signature.Signer
		mu     sync.Mutex
		seen   []string
		status int
	)
	BeforeEach(func() {
		seen, status = nil, http.StatusOK
		o = serve(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, r.URL.Path+" "+r.Header.Get("Authorization"))
			if r.URL.Path == "/moved" {
				http.Redirect(w, r, "/private/moved", http.StatusFound)
				return
			}
			w.Header().Set("ETag", `"v1"`)
			if r.Header.Get("If-None-Match") != "" {
				w.WriteHeader(http.StatusNotModified)
				return
			}
			w.WriteHeader(status)
			if r.URL.Path == "/private/moved" || r.URL.Path == "/open" {
				_, _ = io.WriteString(w, "for <"+r.Header.Get("Authorization")+">")
			}
		})
		seed, keys, err := signature.WriteFiles(GinkgoT().TempDir())
		Expect(err).NotTo(HaveOccurred())
		signer = suitetest.Must(signature.LoadSigner(seed))
		at := suitetest.Must(url.Parse(o.URL))
		headers := ""
		for _, entry := range [][2]string{{key.Namespace, secret}, {"a", "of a"}, {"b, c", "of b"}} {
			headers += fmt.Sprintf("- {host: %s, ports: [%s], schemes: [http], pathPrefix: /private, namespaces: [%s], "+
				"headers: {Authorization: %s}}\n", at.Hostname(), at.Port(), entry[0], entry[1])
		}
		f = w.fetcher(func(o *fetcherOptions) {
			o.get.HeaderFile = writeFile("headers.yaml", []byte(headers))
			o.signatures = suitetest.Must(signature.LoadVerifier(keys))
		})
	})
	sent := func() []string {
		mu.Lock()
		defer mu.Unlock()
		return seen
	}
	signed := func(path string, change ...func(*v1.Want)) *v1.Want {
		want := w.want(o.URL+path, change...)
		signer.Sign(want)
		return want
	}
	refused := func(want *v1.Want) uint64 {
		GinkgoHelper()
		sequence := f.fetch(want)
		failure := w.result().GetFailure()
		Expect(failure.GetClass()).To(Equal(v1.FailureClass_FAILURE_CLASS_ADDRESS_DENIED))
		Expect(failure.GetDetail()).To(Equal(v1.FailureDetail_FAILURE_DETAIL_DENIED_CREDENTIALS))
		Expect(failure.GetNextAt()).To(BeNil(), "the watcher publishes the want again before the next fetch")
		Expect(w.timer().Due).To(And(
			HaveField("Reported", v1.FailureClass_FAILURE_CLASS_ADDRESS_DENIED),
			HaveField("Detail", v1.FailureDetail_FAILURE_DETAIL_DENIED_CREDENTIALS)), "for curlctl and the audit")
		Expect(w.deadLetters()).To(HaveLen(1))
		Eventually(w.pending).Should(BeZero())
		return sequence
	}

	It("are sent at the refresh of a signed want, and the writer reads the object first", func() {
		f.fetchDue(signed("/private/a", every(10*time.Minute)), &v1.Due{Cause: v1.Cause_CAUSE_REFRESH})
		Expect(sent()).To(Equal([]string{"/private/a " + secret}))
		Expect(w.result().GetWant().GetReadFirst()).To(BeTrue())
		Expect(w.result().GetWant().GetStatus()).To(BeEmpty())
	})

	It("are not sent for a want of another publisher, which is reported", func() {
		want := signed("/private/a", every(10*time.Minute))
		want.Url = o.URL + "/private/b"
		refused(want)
		Expect(sent()).To(BeEmpty())
	})

	It("are checked once per interval without a request while the want is not signed", func() {
		// The URL, and so the port, decides when a refresh comes. Here the first one comes after six minutes, not after
		// three eighths of the interval.
		slot := engine.Refresh{Min: time.Second}.Next(w.clock.Now(), o.URL+"/private/a", 10*time.Minute)
		w.clock.Advance(slot.Sub(w.clock.Now()) + 4*time.Minute)
		sequence := refused(w.want(o.URL+"/private/a", every(10*time.Minute)))
		reports := len(w.results())
		for range 4 {
			Expect(w.timer().at).To(BeTemporally(">", w.clock.Now().Add(4*time.Minute)))
			f.elapse()
			Eventually(w.pending).Should(BeZero())
			Expect(w.timer().Due).To(And(HaveField("WantSequence", sequence),
				HaveField("Detail", v1.FailureDetail_FAILURE_DETAIL_DENIED_CREDENTIALS)))
		}
		Expect(w.results()).To(HaveLen(reports+1), "one more after three intervals")
		Expect(sent()).To(BeEmpty())
		By("sending them once it is signed")
		f.fetch(signed("/private/a", every(10*time.Minute)))
		Expect(sent()).To(Equal([]string{"/private/a " + secret}))
		Expect(w.timer().Due).To(And(HaveField("Reported", v1.FailureClass_FAILURE_CLASS_UNSPECIFIED),
			HaveField("Detail", v1.FailureDetail_FAILURE_DETAIL_UNSPECIFIED)))
	})

	DescribeTable("are not needed, but a dead letter has the start of the response only for a signed want",
		func(code int, change func(*v1.Want)) {
			status = code
			f.fetch(signed("/open", change))
			f.fetch(w.want(o.URL+"/open", change))
			letters := w.deadLetters()
			Expect(letters).To(HaveLen(2))
			Expect(string(letters[0].GetSnippet())).To(Equal("for <>"))
			Expect(letters[1].GetSnippet()).To(BeEmpty())
		},
		Entry("of a bad status", http.StatusNotFound, func(*v1.Want) {}),
		Entry("that a rule rejects", http.StatusOK, func(w *v1.Want) { w.Expect = []string{"false"} }),
	)

	It("are never in a GET that a signed and an unsigned want share", func() {
		f.fetch(signed("/moved"))
		forged := w.want(o.URL+"/moved", func(w *v1.Want) { w.Name = "another" })
		f.fetch(forged)
		Expect(sent()).To(Equal([]string{"/moved ", "/private/moved " + secret, "/moved "}))
	})

	It("are sent for every want by a fetcher without trusted keys", func() {
		w.fetcher(func(o *fetcherOptions) { o.get = f.get }).fetch(w.want(o.URL + "/private/a"))
		Expect(sent()).To(Equal([]string{"/private/a " + secret}))
	})

	It("separate the GETs of namespaces that may send others, be it a body, a 304 or a failure", func() {
		namespaces := []string{"none", "a", "b", "neither", "c"}
		// visit makes the fetcher handle a message of each namespace, and returns the requests.
		visit := func(message func(namespace string)) []string {
			GinkgoHelper()
			before := len(sent())
			for _, namespace := range namespaces {
				message(namespace)
				f.step()
			}
			return sent()[before:]
		}
		due := func(namespace string) *v1.Due {
			return w.timerOf(pipeline.Key{Namespace: namespace, Name: key.Name, Key: key.Key}).Due
		}
		each := []string{
			"/moved ", "/private/moved ", "/moved ", "/private/moved of a", "/moved ", "/private/moved of b",
		}
		Expect(visit(func(namespace string) {
			w.publish(signed("/moved", in(namespace), every(time.Hour)))
		})).To(Equal(each))
		bodies := map[string]string{}
		for _, r := range w.takeResults() {
			bodies[r.GetWant().GetNamespace()] = string(r.GetContent().GetBody())
		}
		Expect(bodies).To(Equal(map[string]string{
			"a": "for <of a>", "b": "for <of b>", "c": "for <of b>", "none": "for <>", "neither": "for <>",
		}))
		By("refreshing")
		w.clock.Advance(time.Hour)
		Expect(visit(func(namespace string) { w.fire(due(namespace)) })).To(Equal(each))
		Expect(w.results()).To(BeEmpty())
		By("failing, soon and for good")
		status = http.StatusInternalServerError
		w.clock.Advance(time.Hour)
		Expect(visit(func(namespace string) { w.publish(signed("/moved", in(namespace))) })).To(Equal(each))
		status = http.StatusNotFound
		w.clock.Advance(time.Minute)
		Expect(visit(func(namespace string) { w.fire(due(namespace)) })).To(Equal(each))
		Expect(w.deadLetters()).To(HaveLen(len(namespaces)))
		for _, d := range w.deadLetters() {
			body := bodies[d.GetWant().GetNamespace()]
			if body != "for <>" { // not everybody who reads dead letters may use the credential
				body = ""
			}
			Expect(string(d.GetSnippet())).To(Equal(body))
		}
	})

	It("are named by their source if refused, and appear in no message", func() {
		status = http.StatusUnauthorized
		f.fetch(signed("/private/denied"))
		Expect(w.result().GetFailure().GetCredential()).To(Equal("entry 1 of the header file"))
		Expect(w.deadLetters()).To(HaveLen(1))
		searched := 0
		for _, stream := range []string{pipeline.Requests, pipeline.Results, pipeline.DeadLetters} {
			for _, m := range w.messages(stream) {
				Expect(string(m.Data)+fmt.Sprint(m.Header)).NotTo(ContainSubstring(secret), m.Subject)
				searched++
			}
		}
		Expect(searched).To(BeNumerically(">=", 3))
	})
})
