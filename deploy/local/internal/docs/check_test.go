package docs_test

import (
	"maps"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/local/internal/docs"
)

var _ = Describe("The check of pages", func() {
	files := map[string]string{
		"README.md":              "# Top\n\n## What it does, and how\n\n## What it does, and how\n",
		"writer/apply.go":        "package apply\n\ntype Client struct{ Name string }\n\nfunc (c *Client) Patch() {}\n\nfunc New() {}\n\nconst limit = 1\n",
		"writer/x_test.go":       "package apply\n\nvar _ = It(\"writes once\", func() {})\n",
		"writer/made/.gitignore": "*\n",
	}
	check := func(page string) []string {
		GinkgoHelper()
		with := maps.Clone(files)
		with["writer/README.md"] = page
		problems, err := docs.Check(tree(with))
		Expect(err).NotTo(HaveOccurred())
		return texts(problems)
	}

	DescribeTable("accepts what exists",
		func(page string) { Expect(check(page)).To(BeEmpty()) },
		Entry("a file", "[top](../README.md)"),
		Entry("a folder", "[all](../writer)"),
		Entry("the folder of the page", "[all](.)"),
		Entry("the root", "[all](..)"),
		Entry("a heading of another page", "[how](../README.md#what-it-does-and-how)"),
		Entry("the second heading of that name", "[how](../README.md#what-it-does-and-how-1)"),
		Entry("a heading of the page", "# A `b` c\n\n[here](#a-b-c)"),
		Entry("an anchor set by hand", "<a id=\"S1\"></a>\n\n[here](#S1)"),
		Entry("another site", "[there](https://example.com/a#b)"),
		Entry("a link in a block of code", "```\n[no](nowhere.md)\n```"),
		Entry("a spec by its title", "[writes once](x_test.go)"),
		Entry("a spec file by its name", "[`x_test.go`](x_test.go)"),
		Entry("a function", "`writer/apply.go: New`"),
		Entry("a method, relative to the page", "`apply.go: Client.Patch`"),
		Entry("a field", "`apply.go: Client.Name`"),
		Entry("a constant", "`apply.go: limit`"),
		Entry("a symbol of a package", "`apply.Client.Patch`, `apply.New()`"),
		Entry("a symbol of a package that is not ours", "`http.Gett`"),
		Entry("a file in code", "`writer/apply.go`"),
		Entry("a path that is not of the repository", "`/etc/nats.conf`, `namespace/name`"),
		Entry("a file that is made at run time", "`writer/made/kubeconfig`"),
	)

	It("lets a decision record name what is no more, and holds its links", func() {
		t, names := tree(map[string]string{"x/a.go": "package x\n", "x/decisions/0001-a.md": "`x/old.go`\n\n[b](b.md)"})
		problems, err := docs.Check(t, names)
		Expect(err).NotTo(HaveOccurred())
		Expect(texts(problems)).To(ConsistOf("x/decisions/0001-a.md:3: link leads to x/decisions/b.md, which does not exist"))
	})

	DescribeTable("names what does not exist, and where it is claimed",
		func(page, problem string) { Expect(check(page)).To(ConsistOf(problem)) },
		Entry("a file", "a\n\nb [top](../REDME.md)", "writer/README.md:3: link leads to REDME.md, which does not exist"),
		Entry("an image", "![top](top.png)", "writer/README.md:1: link leads to writer/top.png, which does not exist"),
		Entry("a link in a table", "| a |\n|---|\n| [b](c.md) |", "writer/README.md:3: link leads to writer/c.md, which does not exist"),
		Entry("a heading of another page", "[how](../README.md#how)", "writer/README.md:1: link leads to #how, which is no heading of README.md"),
		Entry("a heading of the page", "[how](#how)", "writer/README.md:1: link leads to #how, which is no heading of writer/README.md"),
		Entry("a spec that was renamed", "[writes twice](x_test.go)", "writer/README.md:1: writer/x_test.go has no spec \"writes twice\""),
		Entry("a function", "`writer/apply.go: Old`", "writer/README.md:1: writer/apply.go does not declare Old"),
		Entry("a method", "`writer/apply.go: Client.Put`", "writer/README.md:1: writer/apply.go does not declare Client.Put"),
		Entry("the file of a symbol", "`writer/old.go: New`", "writer/README.md:1: file writer/old.go does not exist"),
		Entry("a symbol of a package", "`apply.Old`", "writer/README.md:1: package apply does not declare Old"),
		Entry("a file in code", "`writer/old.go`", "writer/README.md:1: file writer/old.go does not exist"),
		Entry("a folder in code", "`writer/internal/judge`", "writer/README.md:1: file writer/internal/judge does not exist"),
	)
})
