package broker

import (
	"context"
	"errors"
	"testing"

	"github.com/kv8s/curl-me-that/proto/process"
)

func TestADenialEndsTheRequestsThatNeedTheSubject(t *testing.T) {
	for title, c := range map[string]struct {
		of      Subjects
		subject string
		ended   bool
	}{
		"any, by a replay":     {AnySubject, "curl.due.a.b.c", true},
		"a list, by a list":    {ToList, "$JS.API.DIRECT.GET.CURL_FAILURES", true},
		"a list, by a replay":  {ToList, "curl.due.a.b.c", false},
		"a list, by a body":    {ToList, "$JS.API.DIRECT.GET.CURL_HISTORY.curl.body.a.0", false},
		"a console, by a list": {NoSubject, "$JS.API.DIRECT.GET.CURL_FAILURES", false},
	} {
		t.Run(title, func(t *testing.T) {
			denials := new(Denials)
			ctx, end := denials.CancelOnDenied(t.Context(), c.of)
			defer end()
			denials.add(&PermissionError{Subject: c.subject})
			if got := ctx.Err() != nil; got != c.ended {
				t.Errorf("got %v", got)
			}
			denials.close(process.ErrClosed)
			late, end := denials.CancelOnDenied(t.Context(), NoSubject)
			defer end()
			if ctx.Err() == nil || !errors.Is(context.Cause(late), process.ErrClosed) {
				t.Error("a closed connection ends neither an earlier nor a later request")
			}
		})
	}
}
