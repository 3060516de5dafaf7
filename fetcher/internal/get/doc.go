// Package get makes one GET, safely.
//
// The server is hostile until the digest says otherwise: what it sends is
// bounded in time and size, only HTTP/1.1 is spoken, only an uncoded body of a
// 200 is taken, and what went wrong is told in our words, never in the
// server's. Who may be reached is decided by package egress, for every hop of
// every redirect.
package get
