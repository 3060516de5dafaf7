package fault_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kv8s/curl-me-that/deploy/curlctl/broker"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/cluster"
	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/fault"
	"github.com/kv8s/curl-me-that/proto/pipeline"
)

func TestAnErrorHasOneExitCodeAndOneStatus(t *testing.T) {
	maps := schema.GroupResource{Resource: "configmaps"}
	inKubernetes := func(err error) error { return &cluster.Error{Operation: "patch ConfigMap a/b", Err: err} }
	denied := &broker.PermissionError{Operation: "publish to", Subject: "a"}
	for title, c := range map[string]struct {
		cause, err error
		kind       fault.Kind
		text       string
	}{
		"a request that NATS does not answer": {
			nil, nats.ErrTimeout, fault.NoConnection, "NATS does not respond: nats: timeout",
		},
		"a missing stream": {
			nil, jetstream.ErrStreamNotFound, fault.NotSetUp,
			"nats: API error: code=404 err_code=10059 description=stream not found (`curlctl setup` creates it)",
		},
		"a missing failure": {nil, pipeline.ErrNoMessage, fault.NotFound, pipeline.ErrNoMessage.Error()},
		"a missing body":    {nil, pipeline.ErrNoBody, fault.NotFound, pipeline.ErrNoBody.Error()},
		"a denied request, whatever it returned": {
			denied, nats.ErrTimeout, fault.NotPermitted, "this NATS user may not publish to a: use another identity " +
				"(--context or --nats-creds), or ask for that permission",
		},
		"an interrupt": {context.Canceled, inKubernetes(context.Canceled), fault.Interrupted, "interrupted"},
		"any other":    {nil, io.EOF, fault.Failed, "EOF"},
		"a cluster that is unreachable": {
			nil, inKubernetes(io.EOF), fault.NoConnection, "cannot reach Kubernetes: patch ConfigMap a/b: EOF",
		},
		"an API server that is overloaded": {
			nil, inKubernetes(apierrors.NewServiceUnavailable("later")), fault.NoConnection,
			"cannot reach Kubernetes: patch ConfigMap a/b: later",
		},
		"a missing object": {
			nil, inKubernetes(apierrors.NewNotFound(maps, "b")), fault.NotFound,
			`patch ConfigMap a/b: configmaps "b" not found`,
		},
		"an object that was changed meanwhile": {
			nil, inKubernetes(apierrors.NewConflict(maps, "b", errors.New("changed"))), fault.Failed,
			`patch ConfigMap a/b: Operation cannot be fulfilled on configmaps "b": changed`,
		},
		"a policy that rejects an object": {
			nil, inKubernetes(apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, "b", nil)), fault.Failed,
			`patch ConfigMap a/b: ConfigMap "b" is invalid`,
		},
		"a policy that forbids a request": {
			nil, inKubernetes(apierrors.NewForbidden(maps, "b", errors.New("policy p denied request: ask Bob"))),
			fault.NotPermitted, "this Kubernetes user may not patch ConfigMap a/b: policy p denied request: ask Bob",
		},
		"a missing right": {
			nil, inKubernetes(apierrors.NewForbidden(maps, "b", errors.New(`User "u" cannot patch`))), fault.NotPermitted,
			"this Kubernetes user may not patch ConfigMap a/b",
		},
		"neither NATS nor Kubernetes": {
			nil, fmt.Errorf("%w, and %w", broker.ErrNoConnection, inKubernetes(io.EOF)), fault.NoConnection,
			"cannot connect to NATS, and patch ConfigMap a/b: EOF",
		},
	} {
		t.Run(title, func(t *testing.T) {
			if kind, err := fault.Of(c.cause, c.err); kind != c.kind || err.Error() != c.text {
				t.Errorf("got %v, %q", kind, err)
			}
		})
	}
}
