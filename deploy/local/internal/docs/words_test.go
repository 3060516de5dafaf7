package docs_test

import (
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kv8s/curl-me-that/deploy/local/internal/docs"
)

var _ = Describe("The check of words", func() {
	const list = `
# words of the old design
letters? -> dead letter
  except dead[ -]letters?
notice -> condition
  in watcher/old.go
  in third
# of the source alone
third -> fourth
  source
  in third
tell|told -> reports whether
  identifiers
`
	words := func(files map[string]string) []string {
		GinkgoHelper()
		t, names := tree(files)
		problems, err := docs.Words(t, names, []byte(list))
		Expect(err).NotTo(HaveOccurred())
		return texts(problems)
	}

	It("finds a planted word, with its line and its replacement", func() {
		Expect(words(map[string]string{"watcher/a.go": "package a\n\n// A Letter is kept.\n"})).To(
			ConsistOf(`watcher/a.go:3: the word "Letter" is retired: dead letter`))
	})

	It("finds it among the words of an identifier, and in a string", func() {
		Expect(words(map[string]string{"watcher/a.go": "package a\n\nvar oldNotice = `\nno letter`\n"})).To(ConsistOf(
			`watcher/a.go:3: the word "Notice" is retired: condition`,
			`watcher/a.go:4: the word "letter" is retired: dead letter`,
		))
	})

	It("finds what is retired as an identifier there alone", func() {
		Expect(words(map[string]string{"watcher/a.go": "package a\n\n// Once told, never again.\nfunc tellOnce() {}\n"})).To(ConsistOf(
			`watcher/a.go:4: the word "tell" is retired: reports whether`,
		))
	})

	It("finds it beside its exception", func() {
		Expect(words(map[string]string{"watcher/a.go": "// a dead letter is a letter"})).To(HaveLen(1))
	})

	It("accepts exceptions, parts of words, and files that may use the word", func() {
		Expect(words(map[string]string{
			"watcher/a.go":    "// A dead letter is noticed.\nvar deadLetter = newsletter",
			"watcher/old.go":  "// a notice",
			"third/deep/b.go": "// a notice",
		})).To(BeEmpty())
	})

	It("finds it in the title of a spec, in the comment of a schema and in the prose of a page", func() {
		Expect(words(map[string]string{
			"a_test.go": "package a\n\nvar _ = It(\"buries a letter\", func() {",
			"b.proto":   "string a = 1; // the letter",
			"c.md":      "```\nletter\n```\nThe letter.",
		})).To(ConsistOf(
			`a_test.go:3: the word "letter" is retired: dead letter`,
			`b.proto:1: the word "letter" is retired: dead letter`,
			`c.md:4: the word "letter" is retired: dead letter`,
		))
	})

	It("leaves out the rest of specs and schemas, what pages quote, generated code and the past", func() {
		Expect(words(map[string]string{
			"a_test.go": "// letter", "a.pb.go": "// letter", "a.txt": "letter", "a.proto": "string letter = 1;",
			"a.md": "`letter` and [a letter](b_test.go) and [a](letter.md); third", "decisions/0001-a.md": "a letter", "CHANGELOG.md": "a letter",
		})).To(BeEmpty())
	})

	DescribeTable("refuses a list that cannot be read",
		func(list, problem string) {
			t, names := tree(nil)
			_, err := docs.Words(t, names, []byte(list))
			Expect(err).To(MatchError(problem))
		},
		Entry("a line without arrow", "letter", `line 1 of the list of words: "letter" has no arrow`),
		Entry("an exception of nothing", "# a\n  in b.go", `line 2 of the list of words: "in b.go" belongs to no word`),
		Entry("an exception of another kind", "a -> b\n  on c", `line 2 of the list of words: "on" is neither identifiers, source, except nor in`),
	)

	DescribeTable("finds by the repository's own list",
		func(line string) {
			list, err := os.ReadFile("../../../tools/retired-words")
			Expect(err).NotTo(HaveOccurred())
			t, names := tree(map[string]string{"fetcher/a.go": "package a\n" + line + "\n"})
			Expect(docs.Words(t, names, list)).To(HaveLen(1))
		},
		Entry("the name of a package", "import _ \"fetcher/lane\""),
		Entry("a dead letter by another name", "// A letter is published."),
		Entry("a dead letter as a verb", "// The message is buried."),
		Entry("a verb for it that means much else", "func (c *Consumer) keep() {}"),
		Entry("an acknowledgement by another name", "// The message is settled."),
		Entry("a response by another name", "// The server has answered."),
		Entry("a comment that lets a function talk", "// ok tells whether it is so."),
		Entry("a log that lets an error talk", `var text = "which says nothing"`),
		Entry("a repair as a fight", "// We fight another controller."),
		Entry("a condition by another name", "// A notice is written once."),
		Entry("a decision as a verdict of a person", "// A policy judges addresses."),
		Entry("a shared call by another name", "type flight struct{}"),
		Entry("a connection by another name", "type link struct{}"),
		Entry("a person in place of what is missing", "// nobody reads it"),
		Entry("a person's temper", "// A hasty caller."),
		Entry("a program as a person", "// The writer believes the want."),
		Entry("a verb that became a type", "type asker struct{}"),
		Entry("namespaces by a vague word", "var scopes []string"),
		Entry("a proverb", "// It is in safe hands."),
	)
})
