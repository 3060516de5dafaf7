package status_test

import (
	"math"
	"testing"

	"github.com/kv8s/curl-me-that/proto/status"
)

func TestFenceRoundTrip(t *testing.T) {
	for text, want := range map[string]status.Fence{
		"0.0":                                  {},
		"1767323045000.7":                      {Epoch: 1767323045000, Seq: 7},
		"253402300799998.18446744073709551615": {Epoch: 253402300799998, Seq: math.MaxUint64},
	} {
		var got status.Fence
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want || got.String() != text {
			t.Errorf("%q: got %+v (%s), %v", text, got, got, err)
		}
	}
}

func TestFenceRefuses(t *testing.T) {
	for _, text := range []string{
		"", "1", "1.", ".1", "-1.1", "1.-1", "1.2.3", "a.b", " 1.1", "1e3.1",
		"253402300800000.1", "9223372036854775808.1",
	} {
		if got := (status.Fence{}); got.UnmarshalText([]byte(text)) == nil {
			t.Errorf("%q: got %+v", text, got)
		}
	}
}

func TestFenceOrder(t *testing.T) {
	ascending := []status.Fence{{}, {0, 1}, {5, 0}, {5, 9}, {5, math.MaxUint64}, {6, 1}}
	for i, a := range ascending {
		for j, b := range ascending {
			if want := max(-1, min(1, i-j)); a.Compare(b) != want || a.Newer(b) != (want > 0) {
				t.Errorf("%s against %s: %d, newer %v", a, b, a.Compare(b), a.Newer(b))
			}
		}
		if a.IsZero() != (i == 0) {
			t.Errorf("%s: IsZero is %v", a, a.IsZero())
		}
	}
}

func TestTheLastEpochReadsAsNoFence(t *testing.T) {
	parsed, err := status.Parse(`{"k":{"fence":"253402300799999.7"},"other":{"fence":"253402300799998.7"}}`)
	if err != nil || !parsed.Keys["k"].Fence.IsZero() || parsed.Keys["other"].Fence.IsZero() {
		t.Errorf("got %+v, %v", parsed, err)
	}
}

func TestEpochAfter(t *testing.T) {
	for name, tt := range map[string]struct {
		have   status.Fence
		stream int64
		seq    uint64
		want   int64
	}{
		"no fence":                        {status.Fence{}, 5, 1, 5},
		"a normal trigger":                {status.Fence{Epoch: 5, Seq: 7}, 5, 8, 5},
		"a new stream":                    {status.Fence{Epoch: 5, Seq: 7}, 6, 1, 6},
		"a restored stream":               {status.Fence{Epoch: 5, Seq: 7}, 5, 7, 6},
		"a much older backup":             {status.Fence{Epoch: 5, Seq: 7}, 5, 2, 6},
		"a new stream with a wrong clock": {status.Fence{Epoch: 9, Seq: 7}, 6, 3, 10},
		"a later trigger of it":           {status.Fence{Epoch: 10, Seq: 3}, 6, 4, 10},
	} {
		got := tt.have.EpochAfter(tt.stream, tt.seq)
		if got != tt.want || !(status.Fence{Epoch: got, Seq: tt.seq}).Newer(tt.have) {
			t.Errorf("%s: epoch %d", name, got)
		}
	}
}
