package pipeline

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

// LastWant returns the last want of a key and its stream sequence. A tombstone
// is a nil want. The error wraps ErrNoMessage when there is none, and
// ErrMalformed when it cannot be decoded; the sequence is valid then.
//
// It is one direct get (ADR-31), which any replica of the stream may answer:
// in a cluster the answer may be a little older than the last write.
func (c *Client) LastWant(ctx context.Context, key Key) (*v1.Want, uint64, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	m, err := c.js.Conn().RequestWithContext(ctx, c.directGet()+Requests+"."+key.Want(), nil)
	if err != nil {
		return nil, 0, fmt.Errorf("read want of %s: %w", key, err)
	}
	switch status := m.Header.Get("Status"); status {
	case "":
	case "404":
		return nil, 0, fmt.Errorf("read want of %s: %w", key, ErrNoMessage)
	default:
		return nil, 0, fmt.Errorf("read want of %s: server answered %s %s", key, status, m.Header.Get("Description"))
	}
	seq, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return nil, 0, fmt.Errorf("read want of %s: sequence: %w", key, err)
	}
	w, err := DecodeWant(key, m.Data)
	return w, seq, err
}

// DefaultAPIPrefix begins the subjects of the JetStream API (ADR-19) outside of
// a domain.
const DefaultAPIPrefix = "$JS.API."

// APIPrefix returns what the subjects of the JetStream API begin with that the
// client uses, the dot at its end included: a domain has its own.
func (c *Client) APIPrefix() string {
	switch o := c.js.Options(); {
	case o.Domain != "":
		return "$JS." + o.Domain + ".API."
	case o.APIPrefix != "":
		return strings.TrimSuffix(o.APIPrefix, ".") + "."
	}
	return DefaultAPIPrefix
}

// directGet is where messages of a stream are read (ADR-31).
func (c *Client) directGet() string { return c.APIPrefix() + "DIRECT.GET." }

// bounded returns ctx with a bound, if it has none: an answer that was lost
// with a connection never comes.
func (c *Client) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, answerTimeout)
}

const answerTimeout = 5 * time.Second

// DecodeWant decodes the payload of a want; a tombstone is nil. The want must
// be for the key that its subject names. Errors wrap ErrMalformed.
func DecodeWant(key Key, data []byte) (*v1.Want, error) {
	if len(data) == 0 {
		return nil, nil //nolint:nilnil // a tombstone is no error
	}
	w := new(v1.Want)
	if err := decode(key, data, w, func() *v1.Want { return w }); err != nil {
		return nil, err
	}
	return w, nil
}

// DecodeDue decodes the payload of a due. Errors wrap ErrMalformed.
func DecodeDue(key Key, data []byte) (*v1.Due, error) {
	d := new(v1.Due)
	if err := decode(key, data, d, d.GetWant); err != nil {
		return nil, err
	}
	return d, nil
}

// DecodeResult decodes the payload of a result. Errors wrap ErrMalformed.
func DecodeResult(key Key, data []byte) (*v1.Result, error) {
	r := new(v1.Result)
	if err := decode(key, data, r, r.GetWant); err != nil {
		return nil, err
	}
	return r, nil
}

func decode(key Key, data []byte, into proto.Message, want func() *v1.Want) error {
	if err := proto.Unmarshal(data, into); err != nil {
		return fmt.Errorf("decode message for %s: %w (%w)", key, ErrMalformed, err)
	}
	if w := want(); w == nil || KeyOf(w) != key || w.GetUrl() == "" && w.GetUid() == "" {
		return fmt.Errorf("decode message for %s: %w: it is for another key", key, ErrMalformed)
	}
	return nil
}
