package apply

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kv8s/curl-me-that/proto/annotation"
	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/pipeline"
	"github.com/kv8s/curl-me-that/proto/status"
	"github.com/kv8s/curl-me-that/writer/internal/plan"
)

// errMalformed means that a message cannot be applied.
var errMalformed = errors.New("malformed result")

// parseMessage parses a message. Subject and payload must agree and contain valid Kubernetes names, because
// the names become part of a request path and the key becomes part of a patch. On error, the item has the
// fields that could be read.
func parseMessage(subject string, data []byte, protected []string) (plan.Item, error) {
	kind, key, err := pipeline.ParseSubject(subject)
	if err != nil {
		return plan.Item{}, fmt.Errorf("%w: %w", errMalformed, err)
	}
	result, err := pipeline.DecodeResult(key, data)
	if err != nil {
		return plan.Item{Key: key}, fmt.Errorf("%w: %w", errMalformed, err)
	}
	item := plan.NewItem(result)
	// Only the watcher may publish on that subject, because it limits how many keys are removed at once.
	if item.OfObject() != (kind == pipeline.KindSync) || item.OfObject() && key.Key != status.ObjectKey {
		return item, fmt.Errorf("%w: only the watcher may request to sync an object", errMalformed)
	}
	if err := check(key, result); err != nil {
		return item, err
	}
	if annotation.Protects(protected, key.Namespace, key.Name) {
		return item, &pipeline.ClassError{
			Class: failure.WriteFailed,
			Err:   fmt.Errorf("protected object: ConfigMap %s/%s", key.Namespace, key.Name),
		}
	}
	return item, nil
}

func check(key pipeline.Key, r *v1.Result) error {
	want := r.GetWant()
	switch {
	case len(validation.IsDNS1123Label(key.Namespace)) > 0:
		return fmt.Errorf("%w: illegal namespace", errMalformed)
	case len(validation.IsDNS1123Subdomain(key.Name)) > 0:
		return fmt.Errorf("%w: illegal name", errMalformed)
	case want.GetUid() == "":
		return fmt.Errorf("%w: no uid", errMalformed)
	case r.GetSync() != nil: // it has neither URL nor fence
		return checkTimes(r)
	case len(validation.IsConfigMapKey(key.Key)) > 0:
		return fmt.Errorf("%w: illegal key", errMalformed)
	case r.GetSequence() == 0:
		return fmt.Errorf("%w: no sequence", errMalformed)
	case want.GetEpoch() < 0 || want.GetEpoch() > status.MaxEpoch: // it would make the status unreadable
		return fmt.Errorf("%w: epoch out of range", errMalformed)
	case want.GetUrl() == "":
		return fmt.Errorf("%w: no url", errMalformed)
	}
	switch outcome := r.GetOutcome().(type) {
	case nil:
		return fmt.Errorf("%w: no outcome", errMalformed)
	case *v1.Result_Content:
		required := want.GetSha256()
		if want.GetRefresh().AsDuration() > 0 { // other content is only offered
			required = ""
		}
		if err := checkDigest(outcome.Content, required); err != nil {
			return err
		}
	}
	return checkTimes(r)
}

// checkTimes rejects times that JSON cannot express. A single one would make the status of all keys
// unwritable.
func checkTimes(r *v1.Result) error {
	for _, at := range []*timestamppb.Timestamp{r.GetObservedAt(), r.GetFailure().GetFirstFailedAt(), r.GetFailure().
		GetNextAt()} {
		if at != nil && !at.IsValid() {
			return fmt.Errorf("%w: illegal time", errMalformed)
		}
	}
	return nil
}

// checkDigest compares a body with the digest in the message and with the digest that the annotation
// requires.
func checkDigest(c *v1.Content, required string) error {
	var problem string
	switch digest := pipeline.Digest(c.GetBody()); {
	case digest != c.GetSha256():
		problem = "body does not match the digest in the message"
	case required != "" && digest != required:
		problem = "body does not match the digest that the annotation requires"
	default:
		return nil
	}
	return &pipeline.ClassError{Class: failure.DigestMismatch, Err: errors.New(problem)}
}
