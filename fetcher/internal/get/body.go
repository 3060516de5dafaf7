package get

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kv8s/curl-me-that/proto/pipeline"
)

// snippetTimeout is the time limit for the body of a response with a bad status.
const snippetTimeout = time.Second

// content reads the body of a 200. Its Validators get from.
func (x *exchange) content(from string, answer *http.Response) (Response, error) {
	layers, err := gzipLayers(answer.Header)
	if err != nil {
		return Response{}, err
	}
	limit := x.client.cfg.MaxBody
	if answer.ContentLength > limit {
		return Response{}, errTooLarge(limit)
	}
	start := time.Now()
	body, err := readBody(answer.Body, answer.ContentLength, limit)
	if err == nil && !isWhole(answer.Header, len(body)) {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		body, err = x.decode(body, layers, limit)
	}
	if err != nil {
		return Response{}, err
	}
	x.request.Observer.phase(phaseTransfer, time.Since(start))
	return Response{
		Body:       body,
		SHA256:     pipeline.Digest(body),
		Validators: x.validators(from, answer.Header),
	}, nil
}

// rejected returns what a failure tells about a response with a bad status.
func (x *exchange) rejected(answer *http.Response, cancel context.CancelFunc) rejection {
	r := rejection{
		status: answer.StatusCode, retryAfter: retryAfter(answer.Header, x.client.deps.Now()), decided: true,
	}
	if answer.StatusCode == http.StatusSwitchingProtocols || x.credential { // who reads dead letters may not have it
		return r
	}
	timer := time.AfterFunc(snippetTimeout, cancel)
	defer timer.Stop()
	snippet := make([]byte, pipeline.MaxSnippet)
	n, err := io.ReadFull(answer.Body, snippet)
	if err == nil || n > 0 || errors.Is(err, io.EOF) {
		r.snippet = snippet[:n]
	}
	return r
}

// firstRead is the initial buffer size for a body of unknown length.
const firstRead = 32 << 10

// readBody reads a body of at most limit bytes. It counts the received bytes regardless of the announced length, and
// never uses a buffer of more than limit+1 bytes. A length that is not negative is at most limit and saves copies.
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

// decode removes layers of gzip from a body.
func (x *exchange) decode(body []byte, layers int, limit int64) (_ []byte, err error) {
	if layers > 0 {
		began := time.Now()
		defer func() { x.request.Observer.decoded(time.Since(began)) }()
	}
	for range layers {
		if body, err = gunzip(body, limit); err != nil {
			return nil, err
		}
	}
	return body, nil
}

// maxLayers is the maximum number of times that a body may be compressed.
const maxLayers = 3

// unsupportedCodings are the codings of a body that are not decoded. Besides the registered ones (RFC 9110
// section 18.6), these are common names of compressions. Servers also name character sets, file types
// and "none", which change nothing.
const unsupportedCodings = " aes128gcm br brotli bzip bzip2 compress dcb dcz deflate exi lz4 lzma lzw pack200-gzip " +
	"peerdist rsync sdch snappy snappy-framed xpress xz zlib zstd zstandard "

// gzipLayers returns how often a body is compressed by gzip.
func gzipLayers(h http.Header) (layers int, _ error) {
	codings := strings.ToLower(strings.Join(h.Values("Content-Encoding"), ","))
	for coding := range strings.FieldsFuncSeq(codings, func(c rune) bool { return strings.ContainsRune(" \t,;\"", c) }) {
		coding = strings.TrimPrefix(coding, "x-")
		switch {
		case coding == "gzip":
			layers++
		case strings.Contains(unsupportedCodings, " "+coding+" "):
			return 0, errCoding
		}
	}
	if layers > maxLayers {
		return 0, errCoding
	}
	return layers, nil
}

// gunzip decodes a body of at most limit bytes, which may consist of several members (RFC 1952 section
// 2.2). Servers announce gzip for an empty body, too.
func gunzip(body []byte, limit int64) ([]byte, error) {
	switch {
	case len(body) == 0:
		return body, nil
	case !bytes.HasPrefix(body, []byte("\x1f\x8b")):
		return nil, errGzip
	}
	reader, err := gzip.NewReader(bytes.NewReader(body))
	if err == nil {
		body, err = readBody(reader, -1, limit)
	}
	var tooLarge *Error
	switch {
	case err == nil:
		return body, nil
	case errors.As(err, &tooLarge), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, err
	}
	return nil, errors.Join(errGzip, err)
}

// contentRange matches a Content-Range that gives the size of the whole (RFC 9110 section 14.4). Many servers write an
// equals sign, as in Range.
var contentRange = regexp.MustCompile(`^(?i:bytes)[ =]+[0-9]+-[0-9]+/([0-9]+)$`)

// isWhole reports whether the headers that package http does not read announce a whole file of that size, since some
// caches send the part or parts of a file that another client has requested as a 200. It reads a hidden
// Content-Length, too.
func isWhole(h http.Header, size int) bool {
	if strings.HasPrefix(strings.ToLower(h.Get("Content-Type")), "multipart/byteranges") {
		return false
	}
	for _, text := range slices.Concat(h.Values("Content-Range"), hidden(h, "Content-Range")) {
		if found := contentRange.FindStringSubmatch(text); found != nil {
			whole, _ := strconv.ParseInt(found[1], 10, 64) // the largest number if it is too large
			if int64(size) < whole {
				return false
			}
		}
	}
	lengths := hidden(h, "Content-Length")
	return lengths == nil || lengths[0] == strconv.Itoa(size)
}
