//go:build !linux

package usage

func read(int) (Usage, error) { return Usage{}, ErrUnknown }

func running(string) (map[string]int, error) { return nil, ErrUnknown }

func processors() ([]int, error) { return nil, ErrUnknown }

func pin(int, []int) error { return ErrUnknown }
