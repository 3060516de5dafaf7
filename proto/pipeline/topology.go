package pipeline

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/pflag"

	"github.com/kv8s/curl-me-that/proto/duration"
)

// Names of the streams.
const (
	// Requests holds wants, dues and pending timers.
	Requests = "CURL_REQUESTS"
	// Results holds outcomes until the writer has applied them.
	Results = "CURL_RESULTS"
	// DeadLetters keeps dead letters with the original request.
	DeadLetters = "CURL_FAILURES"
	// History keeps the bodies that keys had, and those offered to pinned keys. It exists only if Topology asks for it.
	History = "CURL_HISTORY"
)

// Names of the durable pull consumers, shared by all replicas of a service.
const (
	// FetcherConsumer reads wants and dues from Requests.
	FetcherConsumer = "fetcher"
	// WriterConsumer reads Results.
	WriterConsumer = "writer"
)

// AckWait is how long the server waits for an acknowledgement or a progress report before it
// redelivers a message to another replica. It includes the time in the client's buffer.
const AckWait = 30 * time.Second

// TombstoneTTL is how long the tombstone of a want is kept: longer than any trigger of the want can
// be in flight.
const TombstoneTTL = time.Hour

// DueTTL is how long a fired timer is kept.
const DueTTL = 24 * time.Hour

// HistoryAge is how long a body stays in the history.
const HistoryAge = 30 * 24 * time.Hour

// MaxPinsFilled is the maximum number of keys of an object that one message fills from the history.
const MaxPinsFilled = 16

// HistoryVersions is the number of versions of a key that the history keeps.
const HistoryVersions = 10

// MaxRequestBytes is the maximum size of a message in Requests, headers included.
const MaxRequestBytes = 64 << 10

// Topology has the settings of the streams. Zero keeps the value of an existing stream, so that a
// limit that was raised by any means survives later calls.
type Topology struct {
	// Replicas of each stream: 1, 3 or 5; 1 for a new stream.
	Replicas int
	// MaxResultBytes is the maximum size of the stream of results; 4 GiB for a new stream. If it is
	// full, fetchers wait for the writer.
	MaxResultBytes int64
	// DeadLetterBytes is the maximum size of the dead letters; 1 GiB for a new stream. The
	// oldest failures are removed first.
	DeadLetterBytes int64
	// DeadLetterAge is how long failures are kept; 14 days for a new stream.
	DeadLetterAge time.Duration
	// HistoryBytes is the maximum size of the history; 0 creates none, and an existing larger one stays as it is. The
	// oldest bodies are removed first.
	HistoryBytes int64
	// OnHistoryRejected is called with the reason if the server rejects the history, for example because its disk is too
	// small. That is no error, because the history is not needed to fill keys. Nil ignores it.
	OnHistoryRejected func(error)
	// KeepExisting creates only missing streams, for an identity that may not change streams.
	KeepExisting bool

	// replicasFlag is the name of the flag that sets Replicas.
	replicasFlag string
}

// BindFlags adds the flags about the streams; replicasFlag is the name of the flag for Replicas.
func (t *Topology) BindFlags(fs *pflag.FlagSet, replicasFlag string) {
	t.replicasFlag = replicasFlag
	fs.IntVar(&t.Replicas, replicasFlag, 0,
		"replicas of each stream: 1, 3 or 5 (0: keep the current number, 1 for a new stream)")
	fs.Int64Var(&t.MaxResultBytes, "max-results-bytes", 0,
		"maximum bytes of results that wait for the writer (0: keep the current limit, 4 GiB for a new stream)")
	fs.Int64Var(&t.DeadLetterBytes, "max-failures-bytes", 0,
		"maximum bytes of stored failures (0: keep the current limit, 1 GiB for a new stream)")
	duration.Var(fs, &t.DeadLetterAge, "failures-max-age", 0,
		"how long failures are kept (0: keep the current age, 14d for a new stream)")
	fs.Int64Var(&t.HistoryBytes, "history-bytes", 1<<30,
		"maximum bytes of earlier bodies, for curlctl history and rollback (0: keep none)")
}

// Validate rejects settings that the broker would reject, and limits that are too low.
func (t *Topology) Validate() error {
	switch {
	case !slices.Contains([]int{0, 1, 3, 5}, t.Replicas):
		return fmt.Errorf("--%s: %d must be 0, 1, 3 or 5", t.replicasFlag, t.Replicas)
	case t.MaxResultBytes != 0 && t.MaxResultBytes < 16<<20:
		return fmt.Errorf("--max-results-bytes: %d is less than 16 MiB", t.MaxResultBytes)
	case t.DeadLetterBytes != 0 && t.DeadLetterBytes < 1<<20:
		return fmt.Errorf("--max-failures-bytes: %d is less than 1 MiB", t.DeadLetterBytes)
	case t.DeadLetterAge != 0 && t.DeadLetterAge < time.Hour:
		return fmt.Errorf("--failures-max-age: %s is shorter than an hour", t.DeadLetterAge)
	case t.HistoryBytes != 0 && t.HistoryBytes < 16<<20:
		return fmt.Errorf("--history-bytes: %d is less than 16 MiB", t.HistoryBytes)
	}
	return nil
}

// withDefaults returns the settings for new streams.
func (t Topology) withDefaults() Topology {
	t.Replicas = cmp.Or(t.Replicas, 1)
	t.MaxResultBytes = cmp.Or(t.MaxResultBytes, 4<<30)
	t.DeadLetterBytes = cmp.Or(t.DeadLetterBytes, 1<<30)
	t.DeadLetterAge = cmp.Or(t.DeadLetterAge, 14*24*time.Hour)
	return t
}

const (
	// maxFetching exceeds the number of messages that fetchers pull: each holds its slots and a
	// small buffer (bufferMessages), so 800 fetchers with 64 slots can be busy at once. Their
	// number and slots limit the concurrency.
	maxFetching = 64 << 10
	// maxWriting is the maximum number of unacknowledged results while the API server is
	// unavailable.
	maxWriting = 4 << 10
)

// streams returns the required configurations of the streams. All are stored in files.
func (t Topology) streams() []jetstream.StreamConfig {
	streams := []jetstream.StreamConfig{t.requests(), t.results(), t.deadLetters()}
	if t.HistoryBytes > 0 {
		streams = append(streams, t.history())
	}
	for i := range streams {
		streams[i].Storage, streams[i].Replicas = jetstream.FileStorage, t.Replicas
	}
	return streams
}

func (t Topology) requests() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        Requests,
		Description: "curl-me-that: wants, dues and timers",
		Subjects:    []string{KindWant.All(), KindDue.All(), KindTimer.All(), cancelPrefix + ">"},
		Retention:   jetstream.LimitsPolicy,
		// One message per subject, and no limit by age, bytes or count: such a limit would silently
		// delete pending timers (ADR-51).
		MaxMsgsPerSubject: 1,
		MaxBytes:          -1,
		Discard:           jetstream.DiscardOld,
		MaxMsgSize:        MaxRequestBytes,
		Duplicates:        2 * time.Minute,
		AllowDirect:       true,
		AllowMsgTTL:       true,
		AllowMsgSchedules: true,
	}
}

func (t Topology) results() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        Results,
		Description: "curl-me-that: outcomes that wait for the writer",
		Subjects:    []string{KindContent.All(), KindFailure.All(), KindSync.All()},
		Retention:   jetstream.WorkQueuePolicy,
		// Not 1: a late outcome would replace a newer one that is still queued. The writer's fence
		// picks the newest.
		MaxMsgsPerSubject: 8,
		Discard:           jetstream.DiscardNew,
		MaxBytes:          t.MaxResultBytes,
		Duplicates:        5 * time.Minute,
		Compression:       jetstream.S2Compression,
	}
}

func (t Topology) deadLetters() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              DeadLetters,
		Description:       "curl-me-that: dead letters, for replay",
		Subjects:          []string{deadLetterPrefix + ">"},
		Retention:         jetstream.LimitsPolicy,
		MaxMsgsPerSubject: 10,
		MaxAge:            t.DeadLetterAge,
		MaxBytes:          t.DeadLetterBytes,
		Discard:           jetstream.DiscardOld,
		Duplicates:        5 * time.Minute,
		AllowDirect:       true,
	}
}

func (t Topology) history() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        History,
		Description: "curl-me-that: earlier bodies, for rollback",
		Subjects:    []string{bodyPrefix + ">", KindVersion.All()},
		Retention:   jetstream.LimitsPolicy,
		// Each body is stored once, because it is published only to an empty subject.
		MaxMsgsPerSubject: HistoryVersions,
		MaxAge:            HistoryAge,
		MaxBytes:          t.HistoryBytes,
		Discard:           jetstream.DiscardOld,
		Duplicates:        5 * time.Minute,
		AllowDirect:       true,
		Compression:       jetstream.S2Compression,
	}
}

// consumers returns the required consumers by stream.
func consumers() map[string]jetstream.ConsumerConfig {
	return map[string]jetstream.ConsumerConfig{
		Requests: {
			Durable:        FetcherConsumer,
			Description:    "curl-me-that fetchers",
			FilterSubjects: []string{KindWant.All(), KindDue.All()},
			AckPolicy:      jetstream.AckExplicitPolicy,
			AckWait:        AckWait,
			// No limit, because the fetcher itself handles poison messages. The server would only
			// stop delivering them.
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
