// Package origin is the web server of tests. The spec sets what each page responds and
// when. Pages count their requests and record every good body that they have served.
package origin
