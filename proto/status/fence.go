package status

import (
	"cmp"
	"errors"
	"strconv"
	"strings"
)

// Fence orders the triggers of one key. A result is stale if its fence is not newer than the one in
// the status annotation.
type Fence struct {
	// Epoch is when the stream of requests was created, in Unix milliseconds. It comes first,
	// because a new stream starts its sequence at 1.
	Epoch int64
	// Seq is the stream sequence of the trigger.
	Seq uint64
}

// MaxEpoch is the maximum epoch of a status: the end of the year 9999.
const MaxEpoch = 253402300799999

// String returns the fence as epoch.sequence.
func (f Fence) String() string {
	return strconv.FormatInt(f.Epoch, 10) + "." + strconv.FormatUint(f.Seq, 10)
}

// Compare returns -1, 0 or +1 as f is older than, equal to or newer than other.
func (f Fence) Compare(other Fence) int {
	return cmp.Or(cmp.Compare(f.Epoch, other.Epoch), cmp.Compare(f.Seq, other.Seq))
}

// Newer reports whether f comes after other.
func (f Fence) Newer(other Fence) bool { return f.Compare(other) > 0 }

// EpochAfter returns an epoch in which the trigger with that sequence comes after f. This is the
// epoch of its stream, unless f has a later one because the stream was restored from a backup, or
// was recreated while the clock was behind.
func (f Fence) EpochAfter(stream int64, seq uint64) int64 {
	switch {
	case f.Epoch < stream:
		return stream
	case f.Seq < seq:
		return f.Epoch
	default:
		return f.Epoch + 1
	}
}

// IsZero reports whether f is the zero value, which means no fence.
func (f Fence) IsZero() bool { return f == Fence{} }

// MarshalText implements encoding.TextMarshaler.
func (f Fence) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. MaxEpoch gives the zero value, because no real
// clock is that wrong and no trigger could come after it.
func (f *Fence) UnmarshalText(text []byte) error {
	epochText, seqText, _ := strings.Cut(string(text), ".")
	epoch, errEpoch := strconv.ParseInt(epochText, 10, 64)
	seq, errSeq := strconv.ParseUint(seqText, 10, 64)
	if errEpoch != nil || errSeq != nil || epoch < 0 || epoch > MaxEpoch {
		return errors.New("fence does not have the form epoch.sequence")
	}
	if *f = (Fence{}); epoch < MaxEpoch {
		*f = Fence{Epoch: epoch, Seq: seq}
	}
	return nil
}
