package docs_test

import (
	"os"
	"slices"
	"testing/fstest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/testkit/suitetest"
)

var _ = Describe("The pages", func() {
	It("name only files, headings and symbols that exist", func() {
		Expect(Check(os.DirFS(root))).To(BeEmpty())
	})
})

var _ = Describe("The check of the pages", func() {
	check := func(page string) []string {
		GinkgoHelper()
		tree := fstest.MapFS{}
		for name, content := range map[string]string{
			"README.md": "# Top\n\n## What it does, and how\n\n## What it does, and how\n",
			"writer/apply.go": "package apply\n\ntype Client struct {\n\tName string\n}\n\n" +
				"func (c *Client) Patch() {}\n\nfunc New() {}\n\nconst limit = 1\n",
			"writer/made/.gitignore":          "*\n",
			"writer/decisions/0001-a.md":      "`writer/old.go`\n",
			"writer/decisions/0002-broken.md": "[b](b.md)\n",
			"writer/README.md":                page,
		} {
			tree[name] = &fstest.MapFile{Data: []byte(content)}
		}
		broken := "writer/decisions/0002-broken.md:1: writer/decisions/b.md does not exist"
		problems := suitetest.Must(Check(tree))
		Expect(problems).To(ContainElement(broken), "links of decisions are checked, their code is not")
		return slices.DeleteFunc(problems, func(p string) bool { return p == broken })
	}

	DescribeTable("accepts",
		func(page string) { Expect(check(page)).To(BeEmpty()) },
		Entry("a file, a folder, the page's folder and the root", "[a](../README.md) [b](../writer) [c](.) [d](..)"),
		Entry("a heading of another page", "[how](../README.md#what-it-does-and-how)"),
		Entry("the second heading of that name", "[how](../README.md#what-it-does-and-how-1)"),
		Entry("a heading of the page", "# A `b` c\n\n[here](#a-b-c)"),
		Entry("an anchor in HTML", "<a id=\"S1\"></a>\n\n[here](#S1)"),
		Entry("another site", "[there](https://example.com/a#b)"),
		Entry("a link in a block of code", "```\n[no](nowhere.md)\n```"),
		Entry("a function, a method, a field and a constant",
			"`writer/apply.go: New`, `apply.go: Client.Patch`, `apply.go: Client.Name`, `apply.go: limit`"),
		Entry("a file in code", "`writer/apply.go`"),
		Entry("a path outside the repository", "`/etc/nats.conf`, `namespace/name`"),
		Entry("a file generated at run time", "`writer/made/kubeconfig`"),
	)

	DescribeTable("reports",
		func(page, problem string) { Expect(check(page)).To(ConsistOf("writer/README.md:" + problem)) },
		Entry("a missing file", "a\n\nb [top](../REDME.md)", "3: REDME.md does not exist"),
		Entry("a missing image", "a\n\n![top](top.png)", "3: writer/top.png does not exist"),
		Entry("a broken link in a table", "| a |\n|---|\n| b [b](c.md) |", "3: writer/c.md does not exist"),
		Entry("a missing heading of another page", "[how](../README.md#how)", "1: README.md has no heading #how"),
		Entry("a missing heading of the page", "[how](#how)", "1: writer/README.md has no heading #how"),
		Entry("a missing function", "`writer/apply.go: Old`", "1: writer/apply.go does not declare Old"),
		Entry("a missing method", "`writer/apply.go: Client.Put`", "1: writer/apply.go does not declare Client.Put"),
		Entry("the missing file of a symbol", "`writer/old.go: New`", "1: writer/old.go does not exist"),
		Entry("a missing file in code", "`writer/old.go`", "1: writer/old.go does not exist"),
		Entry("a missing folder in code", "`writer/internal/judge`", "1: writer/internal/judge does not exist"),
	)
})
