package writer_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/signature"
)

// The uid and the version of these wants match the live object, so no conflict would stop the patch.
var _ = Describe("A result with a forged want", func() {
	DescribeTable("changes nothing", func(body string, forge func(want *v1.Want)) {
		w.start()
		cm := asking("cm", "mydata="+url)
		cm.Annotations["x-kv8s.io/curl-sha256"] = "mydata=" + sum("required")
		cm.Data = map[string]string{"theirs": "value"}
		cm = w.create(cm)
		want := w.want(cm, "mydata", url)
		want.Sha256 = sum("required")
		w.signer.Sign(want)
		forge(want)
		w.apply(w.content(want, body))
		Expect(w.get("cm").Data).To(Equal(map[string]string{"theirs": "value"}))
		Expect(w.calls.all()).NotTo(ContainElement("PATCH configmaps"))

		By("writing the genuine one later")
		want = w.want(cm, "mydata", url)
		want.Sha256 = sum("required")
		w.signer.Sign(want)
		w.apply(w.content(want, "required"))
		Expect(w.get("cm").Data).To(HaveKeyWithValue("mydata", "required"))
	},
		Entry("for a key that is not annotated", "stolen", func(want *v1.Want) { want.Key, want.Sha256 = "password", "" }),
		Entry("for a URL that is not annotated", "required", func(want *v1.Want) { want.Url = "https://evil.example.com/" }),
		Entry("without the required digest", "other", func(want *v1.Want) { want.Sha256 = "" }),
		Entry("without the digest, and without a signature", "other",
			func(want *v1.Want) { want.Sha256, want.Signature = "", nil }),
		Entry("over a key of another owner", "stolen",
			func(want *v1.Want) { want.Key, want.Sha256, want.Fingerprint = "theirs", "", "none" }),
	)

	It("costs a read of the object, logged once per cause", func() {
		w.start()
		for _, name := range []string{"one", "two", "three"} {
			cm := w.create(asking(name, "mydata="+url))
			want := w.want(cm, "mydata", url)
			if want.Signature = nil; name == "three" {
				want.Signature = []byte("by nobody who is trusted")
			}
			w.calls.reset()
			w.apply(w.content(want, "hello there"))
			Expect(w.get(name).Data).To(HaveKeyWithValue("mydata", "hello there"))
			Expect(w.calls.all()).To(Equal([]string{"GET configmaps", "PATCH configmaps"}))
		}
		for _, cause := range []error{signature.ErrUnsigned, signature.ErrUntrusted} {
			Expect(w.Logged(cause.Error())).To(Equal(1), cause.Error())
		}
	})

	It("is accepted after a read of the object if no key is trusted", func() {
		w.config.TrustedKeys = ""
		w.start()
		cm := w.create(asking("cm", "mydata="+url))
		w.apply(w.content(w.want(cm, "mydata", url), "hello there"))
		Expect(w.get("cm").Data).To(HaveKeyWithValue("mydata", "hello there"))
		Expect(w.calls.all()).To(Equal([]string{"GET configmaps", "PATCH configmaps"}))
		Expect(w.Logged(signature.ErrNoKeys.Error())).To(Equal(1))
	})
})
