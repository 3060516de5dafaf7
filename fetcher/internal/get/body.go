package get

import (
	"errors"
	"io"
)

// firstRead is the initial buffer size for a body of unknown length.
const firstRead = 32 << 10

// readBody reads a body of at most limit bytes. It counts the received bytes regardless of the
// announced length, and never uses a buffer of more than limit+1 bytes. A length that is not
// negative is at most limit and saves copies.
func readBody(body io.Reader, length, limit int64) ([]byte, error) {
	size := min(firstRead, limit+1)
	if length >= 0 {
		size = length + 1
	}
	read := make([]byte, 0, size)
	for {
		n, err := body.Read(read[len(read):cap(read)])
		read = read[:len(read)+n]
		switch {
		case int64(len(read)) > limit:
			return nil, errTooLarge(limit)
		case errors.Is(err, io.EOF):
			return read, nil
		case err != nil:
			return nil, err
		}
		if len(read) == cap(read) {
			larger := make([]byte, len(read), min(2*int64(cap(read)), limit+1))
			copy(larger, read)
			read = larger
		}
	}
}
