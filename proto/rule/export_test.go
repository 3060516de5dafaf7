package rule

// Waiting returns the number of evaluations that wait for their turn.
func (e *Evaluator) Waiting() (n int) {
	e.turns.mu.Lock()
	defer e.turns.mu.Unlock()
	for _, queue := range e.turns.waiting {
		n += len(queue)
	}
	return n
}
