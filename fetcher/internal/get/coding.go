package get

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
)

type decodingKey struct{}

// WithDecoding returns a context with which Do reports how long it decoded a compressed body, even a bad one. A
// server can make a megabyte take 0.1 s for each layer.
func WithDecoding(ctx context.Context, report func(time.Duration)) context.Context {
	return context.WithValue(ctx, decodingKey{}, report)
}

// decode removes layers of gzip from a body.
func decode(ctx context.Context, body []byte, layers int, limit int64) (_ []byte, err error) {
	if report, asked := ctx.Value(decodingKey{}).(func(time.Duration)); asked && layers > 0 {
		began := time.Now()
		defer func() { report(time.Since(began)) }()
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
	"sdch snappy xz zlib zstd zstandard "

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
