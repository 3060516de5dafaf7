package engine

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kv8s/curl-me-that/fetcher/internal/get"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
)

// trust is the maximum time between two unconditional GETs of a key. It needs no trust in the
// validators of a server.
const trust = 24 * time.Hour

// bodyAfter returns the body of a key after a response.
func (e *Engine) bodyAfter(t *trigger, r get.Response) *v1.Cached {
	if r.NotModified {
		return t.past.GetCached()
	}
	body := &v1.Cached{
		Sha256: r.SHA256, Size: int64(len(r.Body)), Etag: r.ETag, LastModified: r.LastModified, ValidatedBy: r.From,
	}
	if r.Conditional() {
		// The last conditional GET is at least an interval with its jitter before the end of trust.
		// Random numbers spread the unconditional ones over time.
		interval := t.want.GetRefresh().AsDuration()
		until := trust - time.Duration(e.deps.Random()*float64(trust/4)) - interval - interval/4
		body.ConditionalUntil = timestamppb.New(e.deps.Clock.Now().Add(until))
	}
	return body
}

// validators returns the validators of a body, unless the next GET has to be unconditional.
func validators(body *v1.Cached, now time.Time) get.Validators {
	v := get.Validators{From: body.GetValidatedBy(), ETag: body.GetEtag(), LastModified: body.GetLastModified()}
	if v.Conditional() && now.After(body.GetConditionalUntil().AsTime()) {
		return get.Validators{}
	}
	return v
}

// forgetValidators makes the next GET of a body unconditional, because a person requested it or the
// last one failed, perhaps due to its conditions.
func forgetValidators(body *v1.Cached) {
	if body.GetEtag() != "" || body.GetLastModified() != "" {
		body.Etag, body.LastModified, body.ValidatedBy, body.ConditionalUntil = "", "", "", nil
	}
}
