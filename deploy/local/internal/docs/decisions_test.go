package docs_test

import (
	"path/filepath"
	"regexp"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var (
	// record begins a file of a decision.
	record = regexp.MustCompile(`^# (\d{4}): \S`)
	// heading of a part of it.
	heading = regexp.MustCompile(`(?m)^## (.+)$`)
)

var _ = Describe("The records of decisions", func() {
	It("have the headings that their index names, in that order", func() {
		folder := filepath.Join(root, "deploy", "docs", "decisions")
		named := regexp.MustCompile(`these headings: (.+), (.+), (.+), (.+), (.+)\.\n`).FindStringSubmatch(string(text(filepath.Join(folder, "README.md"))))
		Expect(named).To(HaveLen(6))
		files, err := filepath.Glob(filepath.Join(folder, "[0-9]*.md"))
		Expect(err).NotTo(HaveOccurred())
		Expect(files).NotTo(BeEmpty())
		for _, file := range files {
			content := string(text(file))
			Expect(record.FindStringSubmatch(content)).To(HaveExactElements(Not(BeEmpty()), Equal(filepath.Base(file)[:4])), file)
			var headings []string
			for _, found := range heading.FindAllStringSubmatch(content, -1) {
				headings = append(headings, found[1])
			}
			Expect(headings).To(Equal(named[1:]), file)
		}
	})
})
