package main

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/kv8s/curl-me-that/deploy/local/demo/joke"
)

const index = `Pages to ask for:

  /joke       another joke each time
  /minute     the minute of the day: the same body until it is over, with an ETag
  /pixel.gif  bytes that are no text
  /moody      answers 503 two times out of three
  /teapot     always answers 418
`

// demoPages are for people to play with.
func demoPages() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { text(w, index) })
	mux.Handle("GET "+joke.Path, joke.Handler())
	mux.HandleFunc("GET /minute", minute)
	mux.HandleFunc("GET /pixel.gif", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "image/gif")
		_, _ = w.Write(pixel()) // the client is gone if it fails
	})
	asked := new(atomic.Int64)
	mux.HandleFunc("GET /moody", func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1)%3 != 0 {
			http.Error(w, "not now", http.StatusServiceUnavailable)
			return
		}
		text(w, "in a good mood\n")
	})
	mux.HandleFunc("GET /teapot", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "short and stout", http.StatusTeapot)
	})
	return mux
}

func minute(w http.ResponseWriter, r *http.Request) {
	now := time.Now().UTC().Format("15:04")
	w.Header().Set("ETag", `"`+now+`"`)
	if r.Header.Get("If-None-Match") == `"`+now+`"` {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	text(w, now+" UTC\n")
}

func text(w http.ResponseWriter, words string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprint(w, words)
}

// pixel is the smallest GIF image.
func pixel() []byte {
	return []byte("GIF89a\x01\x00\x01\x00\x80\x00\x00\xff\xff\xff\x00\x00\x00" +
		"!\xf9\x04\x01\x00\x00\x00\x00,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;")
}
