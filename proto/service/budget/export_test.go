package budget

// Namespaces returns how many namespaces are kept.
func Namespaces(b *Budget) int { return len(b.namespaces) }
