package budget

// Namespaces returns the number of accounts.
func Namespaces(b *Budget) int { return len(b.namespaces) }
