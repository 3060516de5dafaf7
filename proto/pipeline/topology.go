package pipeline

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/pflag"

	"github.com/kv8s/curl-me-that/proto/annotation/duration"
)

// Names of the streams.
const (
	// Requests holds what is wanted, what is due and the pending timers.
	Requests = "CURL_REQUESTS"
	// Results holds outcomes until the writer has applied them.
	Results = "CURL_RESULTS"
	// Failures keeps what could not be done, with the original request.
	Failures = "CURL_FAILURES"
	// Audit keeps what operators did.
	Audit = "CURL_AUDIT"
)

// Names of the durable pull consumers, shared by all replicas of a service.
const (
	// FetcherConsumer reads wants and dues from Requests.
	FetcherConsumer = "fetcher"
	// WriterConsumer reads Results.
	WriterConsumer = "writer"
)

// AckWait is how long a delivered message may be worked on before the server
// delivers it to another replica. It runs while the message waits in the
// client's buffer too.
const AckWait = 30 * time.Second

// TombstoneTTL is how long a tombstone of a want is kept: longer than any
// trigger of it can be on its way.
const TombstoneTTL = time.Hour

// DueTTL is how long a fired timer is kept.
const DueTTL = 24 * time.Hour

// MaxRequestBytes bounds a message in Requests, headers included.
const MaxRequestBytes = 64 << 10

// Topology is what may be chosen about the streams. Zero leaves an existing stream
// as it is, so that a limit that was raised, by whatever way, outlives all later
// calls that name none.
type Topology struct {
	// Replicas of each stream: 1, 3 or 5; a new one has 1.
	Replicas int
	// MaxResultBytes bounds the stream of results; when it is full, fetchers
	// wait for the writer. A new one has 4 GiB.
	MaxResultBytes int64
	// MaxFailureBytes bounds the history of failures; the oldest go first. A new
	// one has 1 GiB.
	MaxFailureBytes int64
	// MaxAuditBytes bounds the record of what operators did; when it is full, they
	// can do nothing. A new one has 256 MiB.
	MaxAuditBytes int64
	// FailureAge is how long failures are kept; in a new stream 14 days.
	FailureAge time.Duration
	// KeepExisting creates what is missing and leaves what exists as it is,
	// for an identity that may not change streams.
	KeepExisting bool

	// replicasFlag is the name of the flag that sets Replicas.
	replicasFlag string
}

// BindFlags adds the flags about the streams; replicasFlag names that of Replicas.
func (t *Topology) BindFlags(fs *pflag.FlagSet, replicasFlag string) {
	t.replicasFlag = replicasFlag
	fs.IntVar(&t.Replicas, replicasFlag, 0, "replicas of each stream: 1, 3 or 5; 0: as they are, 1 at first")
	fs.Int64Var(&t.MaxResultBytes, "max-results-bytes", 0, "bytes of results that may wait for the writer; 0: as it is, 4 GiB at first")
	fs.Int64Var(&t.MaxFailureBytes, "max-failures-bytes", 0, "bytes of failures that are kept; 0: as it is, 1 GiB at first")
	duration.Var(fs, &t.FailureAge, "failures-max-age", 0, "how long failures are kept; 0: as it is, 14d at first")
	fs.Int64Var(&t.MaxAuditBytes, "max-audit-bytes", 0, "bytes that the record of what operators did may take; 0: as it is, 256 MiB at first")
}

// Validate refuses, in one sentence, what the broker would refuse, or what would
// leave no room to work.
func (t *Topology) Validate() error {
	switch {
	case !slices.Contains([]int{0, 1, 3, 5}, t.Replicas):
		return fmt.Errorf("--%s: %d is not 0, 1, 3 or 5", t.replicasFlag, t.Replicas)
	case t.MaxResultBytes != 0 && t.MaxResultBytes < 16<<20:
		return fmt.Errorf("--max-results-bytes: %d is less than 16 MiB", t.MaxResultBytes)
	case t.MaxFailureBytes != 0 && t.MaxFailureBytes < 1<<20:
		return fmt.Errorf("--max-failures-bytes: %d is less than 1 MiB", t.MaxFailureBytes)
	case t.FailureAge != 0 && t.FailureAge < time.Hour:
		return fmt.Errorf("--failures-max-age: %s is shorter than an hour", t.FailureAge)
	case t.MaxAuditBytes != 0 && t.MaxAuditBytes < maxRecordBytes:
		return fmt.Errorf("--max-audit-bytes: %d is less than 16 KiB", t.MaxAuditBytes)
	}
	return nil
}

// atFirst is how streams are created that do not exist.
func (t Topology) atFirst() Topology {
	t.Replicas = cmp.Or(t.Replicas, 1)
	t.MaxResultBytes = cmp.Or(t.MaxResultBytes, 4<<30)
	t.MaxFailureBytes = cmp.Or(t.MaxFailureBytes, 1<<30)
	t.MaxAuditBytes = cmp.Or(t.MaxAuditBytes, maxAuditBytes)
	t.FailureAge = cmp.Or(t.FailureAge, 14*24*time.Hour)
	return t
}

const (
	// maxFetching is above what fetchers pull: each holds its slots and a small
	// buffer (bufferMessages), so that 800 of them with 64 slots are busy at
	// once. What bounds the fetching is their number and their slots.
	maxFetching = 64 << 10
	// maxWriting is what may wait for an API server that is unavailable.
	maxWriting = 4 << 10
)

// live begins the subjects under which the streams publish again what they have
// stored. An observer in another account imports these: what is published
// from an account that imports the subjects of the pipeline reaches the streams,
// but no import of a third account.
const live = "live."

// streams returns the configurations that the pipeline needs.
func (t Topology) streams() []jetstream.StreamConfig {
	streams := []jetstream.StreamConfig{t.requests(), t.results(), t.failures(), t.audit()}
	for i := range streams {
		streams[i].RePublish = &jetstream.RePublish{Source: ">", Destination: live + ">"}
	}
	return streams
}

func (t Topology) requests() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        Requests,
		Description: "curl-me-that: what is wanted, due, and scheduled",
		Subjects:    []string{KindWant.All(), KindDue.All(), KindTimer.All(), begunPrefix + ">"},
		Retention:   jetstream.LimitsPolicy,
		// One message per subject, and no limit by age, bytes or count:
		// such a limit would delete pending timers silently (ADR-51).
		MaxMsgsPerSubject: 1,
		MaxBytes:          -1,
		Discard:           jetstream.DiscardOld,
		MaxMsgSize:        MaxRequestBytes,
		Duplicates:        2 * time.Minute,
		Storage:           jetstream.FileStorage,
		Replicas:          t.Replicas,
		AllowDirect:       true,
		AllowMsgTTL:       true,
		AllowMsgSchedules: true,
	}
}

func (t Topology) results() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        Results,
		Description: "curl-me-that: outcomes that wait for the writer",
		Subjects:    []string{KindContent.All(), KindFailure.All(), KindReconcile.All()},
		Retention:   jetstream.WorkQueuePolicy,
		// Not 1: an outcome that arrives late would replace a newer one
		// that is still queued; the writer's fence picks the newest.
		MaxMsgsPerSubject: 8,
		Discard:           jetstream.DiscardNew,
		MaxBytes:          t.MaxResultBytes,
		Duplicates:        5 * time.Minute,
		Compression:       jetstream.S2Compression,
		Storage:           jetstream.FileStorage,
		Replicas:          t.Replicas,
	}
}

func (t Topology) failures() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              Failures,
		Description:       "curl-me-that: what could not be done, for replay",
		Subjects:          []string{deadPrefix + ">"},
		Retention:         jetstream.LimitsPolicy,
		MaxMsgsPerSubject: 10,
		MaxAge:            t.FailureAge,
		MaxBytes:          t.MaxFailureBytes,
		Discard:           jetstream.DiscardOld,
		Duplicates:        5 * time.Minute,
		Storage:           jetstream.FileStorage,
		Replicas:          t.Replicas,
		AllowDirect:       true,
	}
}

func (t Topology) audit() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              Audit,
		Description:       "curl-me-that: what operators did",
		Subjects:          []string{recordPrefix + ">"},
		Retention:         jetstream.LimitsPolicy,
		MaxMsgsPerSubject: -1,
		Duplicates:        2 * time.Minute,
		MaxAge:            auditAge,
		MaxBytes:          t.MaxAuditBytes,
		MaxMsgSize:        maxRecordBytes,
		// Whoever fills it pushes nothing out; and what cannot be recorded is
		// not done.
		Discard:     jetstream.DiscardNew,
		DenyDelete:  true,
		DenyPurge:   true,
		Storage:     jetstream.FileStorage,
		Replicas:    t.Replicas,
		AllowDirect: true,
	}
}

const (
	// auditAge is how long it is known what operators did.
	auditAge = 90 * 24 * time.Hour
	// maxAuditBytes has room for a million records, and maxRecordBytes for one
	// with the longest filter.
	maxAuditBytes  = 256 << 20
	maxRecordBytes = 16 << 10
)

// consumers returns the consumer that each stream needs.
func consumers() map[string]jetstream.ConsumerConfig {
	return map[string]jetstream.ConsumerConfig{
		Requests: {
			Durable:        FetcherConsumer,
			Description:    "curl-me-that fetchers",
			FilterSubjects: []string{KindWant.All(), KindDue.All()},
			AckPolicy:      jetstream.AckExplicitPolicy,
			AckWait:        AckWait,
			// Without a limit: the fetcher itself puts a message aside that
			// comes again and again; the server would only stop delivering.
			MaxDeliver:    -1,
			MaxAckPending: maxFetching,
		},
		Results: {
			Durable:       WriterConsumer,
			Description:   "curl-me-that writers",
			AckPolicy:     jetstream.AckExplicitPolicy,
			AckWait:       AckWait,
			MaxDeliver:    -1,
			MaxAckPending: maxWriting,
		},
	}
}
