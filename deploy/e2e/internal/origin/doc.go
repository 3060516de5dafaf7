// Package origin is the web server of tests. The spec sets the responses of each page and their
// time. Pages count requests and record every good body that they served.
package origin
