// Package remote steers an origin that runs elsewhere: the part of it that
// listens for instructions, and the client in a test that gives them.
package remote
