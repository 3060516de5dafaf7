package sentence

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"

	v1 "github.com/kv8s/curl-me-that/proto/curlmethat/v1"
	"github.com/kv8s/curl-me-that/proto/duration"
	"github.com/kv8s/curl-me-that/proto/failure"
	"github.com/kv8s/curl-me-that/proto/rule"
)

// Failure says why the fetch for a want failed. It contains no query string, no IP address except
// that in the URL, and nothing of the response except the status.
func Failure(w *v1.Want, f *v1.Failure) string {
	if f.GetClass() != failure.ContentRejected {
		return OfHost(Host(w.GetUrl()), f)
	}
	text := rejected(w, int(f.GetRule()))
	if limit := f.GetLimitBytes(); limit > 0 {
		return text + ": the limit is " + bytes(limit)
	}
	return detailed(text, ": ", f)
}

// OfHost says why a fetch from a host failed.
func OfHost(host string, f *v1.Failure) string {
	if text := specific(host, f); text != "" {
		return text
	}
	switch f.GetClass() {
	case failure.BadStatus:
		return detailed(host+" responded with "+status(int(f.GetStatusCode()))+credential(f), "; ", f) + blocked(f)
	case failure.CredentialsFailed:
		return detailed(cmp.Or(source(f), "the token URL")+" gave no token for "+host, ": ", f)
	default:
		return detailed(fmt.Sprintf(cmp.Or(classes[f.GetClass()].sentence, "the request to %s failed"), host), ": ", f)
	}
}

// detailed appends the details of a failure to a sentence, if there are any.
func detailed(text, separator string, f *v1.Failure) string {
	if words := Detail(f); words != "" {
		text += separator + words
	}
	return text
}

// specific returns the sentence about a failure whose detail or numbers say more than its class;
// empty if there is none.
func specific(host string, f *v1.Failure) string {
	limit := f.GetTimeLimit().AsDuration()
	n := int64(f.GetRedirects())
	if f.GetClass() == failure.CredentialsFailed { // the details are about another host
		return ""
	}
	if format := details[f.GetDetail()].sentence; format != "" {
		return fmt.Sprintf(format, host)
	}
	switch f.GetDetail() { //nolint:exhaustive // others add nothing to the sentence of their class
	case failure.RetryAfter:
		text := " asks for a pause: it responded with "
		switch f.GetStatusCode() {
		case 202:
			text = " does not have the body ready yet: it responded with "
		case 403:
			text = " limits the rate of requests: it responded with "
		}
		return host + text + strconv.Itoa(int(f.GetStatusCode())) + " and Retry-After"
	case failure.RedirectLimit:
		if n > 0 {
			return host + " redirected more than " + counted(n, "time")
		}
		return host + " redirected too often"
	case failure.ConnectTimeout:
		if limit > 0 {
			return "could not connect to " + host + " within " + duration.Format(limit)
		}
		return "could not connect to " + host + " in time"
	case failure.CertificateAuthority, failure.CertificateHost,
		failure.CertificateTime, failure.CertificateInvalid,
		failure.CertificateNameless, failure.CertificateChain:
		return "the TLS certificate of " + host + " cannot be trusted: " + Detail(f)
	}
	switch {
	case f.GetClass() == failure.AddressDenied && n > 0:
		text := detailed(fmt.Sprintf("redirect %d of %s leads to a URL that is not allowed", n, host), ": ", f) +
			"; use a URL without that redirect"
		if d := f.GetDetail(); d != failure.DeniedURL &&
			d != failure.DeniedScheme { // no policy allows these
			text += ", or ask the operator"
		}
		return text
	case f.GetClass() == failure.Timeout && limit > 0:
		return host + " did not respond within " + duration.Format(limit) + ", a limit of the operator; " +
			"use a faster URL, or ask the operator to raise it"
	case f.GetClass() == failure.BodyTooLarge && f.GetLimitBytes() > 0:
		return "the body from " + host + " is larger than the limit of " + bytes(f.GetLimitBytes()) +
			"; use a smaller file, or ask the operator to raise it"
	case len(f.GetSha256()) >= shownDigits:
		return "the body from " + host + " has SHA-256 " + f.GetSha256()[:shownDigits] +
			"…, which is not the one in curl-sha256"
	}
	return ""
}

// shownDigits is the number of digits of a digest in a sentence.
const shownDigits = 12

// classes are the sentences about classes, with the host in place of %s (empty: package sentence has others), and the
// section of the page "Why is my key empty?" that explains the class (0: none). The numbers do not change.
var classes = map[v1.FailureClass]struct {
	sentence string
	section  int
}{
	failure.InvalidAnnotation: {"", 2},
	failure.KeyExists:         {"", 3},
	failure.AddressDenied:     {"fetching from %s is not allowed", 4},
	failure.DNSFailed:         {"%s was not found in DNS", 5},
	failure.ConnectFailed:     {"could not connect to %s", 6},
	failure.Timeout:           {"%s did not respond in time", 6},
	failure.TLSFailed:         {"TLS handshake with %s failed", 7},
	failure.BadStatus:         {"", 8},
	failure.CredentialsFailed: {"", 8},
	failure.TooManyRedirects:  {"a redirect from %s was not followed", 8},
	failure.BadResponse:       {"%s sent an unusable response", 8},
	failure.BodyTooLarge:      {"the body from %s is too large", 9},
	failure.DigestMismatch:    {"the body from %s does not match curl-sha256", 9},
	failure.ContentRejected:   {"", 9},
	failure.WriteFailed:       {"", 10},
	failure.Immutable:         {"", 10},
	failure.Poison:            {"the request to %s could not be completed", 0},
}

// status returns a status code in words, with what to do about a success other than 200.
func status(code int) string {
	text := strconv.Itoa(code)
	switch {
	case code == 204, code == 205:
		return text + " (no content), but only 200 is accepted; use a URL that returns a body"
	case code == 206:
		return text + " (partial content) although no part was requested; use a URL that responds with 200"
	case code/100 == 2:
		return text + ", but only 200 is accepted; use a URL that responds with 200"
	case code == 304:
		return text + " (not modified) although the request had no condition; use a URL that responds with 200"
	case code/100 == 3:
		return text + ", which is not followed; use the URL that it leads to"
	}
	return text
}

// credential says which credential a server rejected.
func credential(f *v1.Failure) string {
	if source(f) == "" {
		return ""
	}
	return "; the credential of " + source(f) + " was sent"
}

// blocked names the other usual cause of a 403 without a credential.
func blocked(f *v1.Failure) string {
	if f.GetStatusCode() != 403 || f.GetDetail() != failure.NoCredential {
		return ""
	}
	return ", or the server rejects the User-Agent, which a header entry can change"
}

// sources matches the valid sources of a credential, because a fetcher may be compromised.
var sources = regexp.MustCompile(`^((entry [0-9]{1,5} of the header file)|(Secret )?[a-z0-9.-]{1,253})$`)

func source(f *v1.Failure) string { return sources.FindString(f.GetCredential()) }

// rejected says which expression of a want the response does not pass. The fetcher reports only its
// number.
func rejected(w *v1.Want, number int) string {
	text := Host(w.GetUrl()) + ": the response for " + w.GetKey()
	switch expect := w.GetExpect(); {
	case number == 0 && w.GetSelect() != "":
		return text + " has nothing for curl-select, " + rule.Shortened(w.GetSelect())
	case number > 0 && number <= len(expect):
		return text + " does not meet rule " + strconv.Itoa(number) + " of curl-expect, " + rule.Shortened(expect[number-1])
	}
	return text + " does not meet curl-expect"
}
