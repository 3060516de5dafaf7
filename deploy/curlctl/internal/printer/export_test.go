package printer

// OnTerminal makes a printer print its progress.
func OnTerminal(p *Printer) *Printer {
	p.terminal = true
	return p
}
