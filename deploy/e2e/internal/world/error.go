package world

// ErrorOf returns the error of a call whose value does not matter.
func ErrorOf[T any](_ T, err error) error { return err }
