// Package docs checks what the Markdown of this repository claims about the
// repository: that files, headings, Go symbols and specs that a page names
// exist, and that no Go file uses a word that was retired.
package docs

import "fmt"

// Problem is a claim that is not true.
type Problem struct {
	// File with the claim, relative to the repository.
	File string
	// Line of the claim, from 1; 0: the whole file.
	Line int
	// Text is what is wrong.
	Text string
}

// String returns the problem as compilers print theirs.
func (p Problem) String() string { return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Text) }
