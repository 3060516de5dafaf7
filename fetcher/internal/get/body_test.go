package get_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

func gzipped(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, text)
	_ = w.Close()
	return b.String()
}

var _ = Describe("a body with a Content-Encoding", func() {
	send := func(ctx context.Context, coding, body string) (get.Response, error) {
		client := newClient()
		text := "HTTP/1.1 200 OK\r\nContent-Encoding: " + strings.ReplaceAll(coding, "|", "\r\nContent-Encoding: ") + "\r\n"
		return client.Do(ctx, get.Request{URL: urlOf(serve(say(text+length(len(body))+body)), "/")})
	}
	once := gzipped("hello")

	const refused, bad, cut = v1.FailureDetail_FAILURE_DETAIL_CONTENT_ENCODING, v1.FailureDetail_FAILURE_DETAIL_BAD_GZIP,
		v1.FailureDetail_FAILURE_DETAIL_CUT_OFF
	DescribeTable("is decoded, is what it is, or fails:", func(ctx SpecContext, coding, body string, want any) {
		response, err := send(ctx, coding, body)
		if detail, fails := want.(v1.FailureDetail); fails {
			Expect(errorOf(response, err).Detail).To(Equal(detail))
			return
		}
		Expect(err).NotTo(HaveOccurred())
		Expect(string(response.Body)).To(Equal(want))
		Expect(response.SHA256).To(Equal(pipeline.Digest(response.Body)))
	},
		Entry("gzip", "gzip", once, "hello"),
		Entry("x-gzip", "X-GZip", once, "hello"),
		Entry("identity and gzip", "identity, gzip", once, "hello"),
		Entry("gzip and identity, in two lines", "gzip|identity", once, "hello"),
		Entry("gzip, and an empty name", ", gzip", once, "hello"),
		Entry("gzip with a parameter", "gzip;q=1.0", once, "hello"),
		Entry("gzip in two members", "gzip", once+once, "hellohello"),
		Entry("gzip twice", "gzip, gzip", gzipped(once), "hello"),
		Entry("gzip of a .gz file: only the outer layer", "gzip", gzipped(once), once),
		Entry("gzip of the limit", "gzip", gzipped(strings.Repeat("x", limit)), strings.Repeat("x", limit)),
		Entry("gzip of nothing", "gzip", gzipped(""), ""),
		Entry("gzip without a byte", "gzip", "", ""),
		Entry("gzip of aws-chunked", "aws-chunked, gzip", once, "hello"),
		Entry("none", "none", "hello", "hello"),
		Entry("empty", "", "hello", "hello"),
		Entry("identity", "Identity", "hello", "hello"),
		Entry("aws-chunked", "aws-chunked", "hello", "hello"),
		Entry("a character set", "UTF-8", "hello", "hello"),
		Entry("binary", "binary", "hello", "hello"),

		Entry("br", "br", "\x8b\x00\x80\x03", refused),
		Entry("zstd", "zstd", "\x28\xb5\x2f\xfd", refused),
		Entry("deflate", "Deflate", "x", refused),
		Entry("compress", "x-compress", "x", refused),
		Entry("xpress", "xpress", "x", refused),
		Entry("framed snappy", "x-snappy-framed", "x", refused),
		Entry("gzip and br", "gzip, br", once, refused),
		Entry("br and gzip, in two lines", "br|gzip", once, refused),
		Entry("gzip very often", strings.Repeat("gzip,", 1000), once, refused),
		Entry("plain text as gzip", "gzip", "hello", bad),
		Entry("long plain text as gzip", "gzip", strings.Repeat("hello", 99), bad),
		Entry("gzip and garbage", "gzip", once+"garbage, too long", bad),
		Entry("gzip with a wrong checksum", "gzip", once[:len(once)-8]+"wrong"+once[len(once)-3:], bad),
		Entry("gzip with a broken block", "gzip", once[:10]+"\xff\xff\xff"+once[13:], bad),
		Entry("half of gzip", "gzip", once[:len(once)/2], cut),
		Entry("gzip without its checksum", "gzip", once[:len(once)-8], cut),
		Entry("gzip with half a member more", "gzip", once+once[:12], cut),
	)

	It("is limited by its decoded size", func(ctx SpecContext) {
		Expect(errorOf(send(ctx, "gzip", gzipped(strings.Repeat("x", limit+1)))).Limit).To(BeEquivalentTo(limit))
	})
})
