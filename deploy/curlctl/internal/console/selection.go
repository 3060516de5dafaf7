package console

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/url"
	"strconv"

	"github.com/kv8s/curl-me-that/deploy/curlctl/internal/readable"
	"github.com/kv8s/curl-me-that/deploy/curlctl/operate"
)

// maxIDs is the maximum number of IDs in a form.
const maxIDs = 1000

// selection is the subject of a replay or purge.
type selection struct {
	filter
	ids []uint64
	// top is the newest selected failure, and count their number.
	top   uint64
	count int
}

// selected parses IDs, or the filter. A submitted form selects no failure that is newer than its
// dialog.
func (v *visit) selected(submitted bool) (selection, error) {
	f, err := v.readFilter()
	s := selection{filter: f}
	if err != nil {
		return s, err
	}
	s.Dead.Below = 0
	for _, text := range v.Form["id"] {
		id, err := strconv.ParseUint(text, 10, 64)
		if err != nil || id == 0 {
			return s, badRequest(fmt.Errorf("id: %q is not the ID of a failure", text))
		}
		if s.ids = append(s.ids, id); len(s.ids) > maxIDs {
			return s, badRequest(fmt.Errorf("id: more than %d, select by filter", maxIDs))
		}
	}
	if submitted {
		top, err := strconv.ParseUint(v.FormValue("top"), 10, 64)
		if err != nil {
			return s, badRequest(errors.New("top: the form is incomplete, open the dialog again"))
		}
		s.Dead.Below = top + 1
	}
	return s, nil
}

// failures reads the selected failures. A failure of another namespace is not found.
func (s selection) failures(
	ctx context.Context, client *operate.Client, unread *readable.Unread,
) iter.Seq2[operate.DeadLetter, error] {
	if len(s.ids) == 0 {
		return readable.Only(unread, client.DeadLetters(ctx, s.Dead))
	}
	return func(yield func(operate.DeadLetter, error) bool) {
		for _, id := range s.ids {
			f, err := failureIn(ctx, client, id, s.Namespace)
			if !yield(f, err) || err != nil {
				return
			}
		}
	}
}

// address returns the address of a dialog about the same selection, with more fields.
func (s selection) address(path string, more url.Values) string {
	maps.Copy(more, s.Values)
	for _, id := range s.ids {
		more.Add("id", strconv.FormatUint(id, 10))
	}
	return path + "?" + more.Encode()
}

// words returns the arguments of curlctl.
func (s selection) words() []string {
	if len(s.ids) == 0 {
		if words := s.Words(); len(words) > 0 {
			return words
		}
		return []string{"--all"}
	}
	var words []string
	for _, id := range s.ids {
		words = append(words, strconv.FormatUint(id, 10))
	}
	return words
}

// repeat puts the selection into the form.
func (s selection) repeat(d *dialog, count int) {
	for _, field := range filterFields() {
		d.hide(field, s.Values.Get(field))
	}
	for _, id := range s.ids {
		d.hide("id", strconv.FormatUint(id, 10))
	}
	d.hide("top", strconv.FormatUint(s.top, 10))
	d.hide("count", strconv.Itoa(count))
	d.hide("job", rand.Text())
	d.Back = s.At("/failures")
}
